"""Record how much fresh processes of one configuration differ, for the simulation in `scripts.bench.decisions`::

    python -m scripts.bench.record_noise --processes 12 -o noise.json

Every target runs in a row of fresh processes under the default configuration: first alone, then while further processes
import beside the one that measures. The file has the steps of each process in ns.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from profiler_kit.measurement.sweep import measure_visits
from profiler_kit.measurement.visits import Visit
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.target import TargetSpec
from profiler_kit.worker.environment import pick_device

ROOT: Final = Path(__file__).resolve().parents[2]
DEFAULT: Final = RunConfig(name="default", enabled=True, benchmark=False, deterministic=False, allow_tf32=True)
TARGETS: Final = {
    "mnist with loader": TargetSpec(spec=str(ROOT / "models" / "mnist_cnn.py")),
    "resnet, batch 1": TargetSpec(spec=str(ROOT / "models" / "resnet.py"), batch=1),
    "gpt, batch 1": TargetSpec(spec=str(ROOT / "models" / "transformer.py"), batch=1),
    "convnet_v1": TargetSpec(spec=str(ROOT / "models" / "convnet_v1.py")),
}


def record(spec: TargetSpec, device: str, processes: int, ahead: int, budget_s: float) -> Iterator[list[int]]:
    """Yield the steps of `processes` fresh processes, with up to `ahead` others importing beside the one that measures."""
    visits = [Visit(config=DEFAULT, budget_s=budget_s, checks=False, again=True) for _ in range(processes)]
    finished = measure_visits(
        spec, visits, device=device, on_start=lambda _: None, on_progress=lambda *_: None, ahead=ahead
    )
    for visit in finished:
        if visit.run.failure is not None:
            raise SystemExit(f"{spec.spec}: {visit.run.failure.message}\n{visit.run.failure.log_tail}")
        yield list(visit.run.steps_ns)


def main(argv: list[str]) -> int:
    """Record all targets and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--budget", type=float, default=1.0, metavar="S", help="seconds of steps per process")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", nargs="*", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args(argv)
    device = pick_device(args.device)
    rows: list[dict[str, Any]] = []
    for name in args.only:
        for ahead in (0, 3):
            steps_ns = list(record(TARGETS[name], device, args.processes, ahead, args.budget))
            rows.append({"target": name, "ahead": ahead, "steps_ns": steps_ns})
            args.output.write_text(json.dumps(rows) + "\n", encoding="utf-8")
            medians = [sorted(steps)[len(steps) // 2] / 1e6 for steps in steps_ns]
            print(name, f"ahead={ahead}", *(f"{ms:.3f}" for ms in medians), file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
