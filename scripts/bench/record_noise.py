"""Record how far fresh processes of one configuration differ, for the simulation in `scripts.bench.decisions`::

    python -m scripts.bench.record_noise --processes 12 -o noise.json

Every target runs in fresh processes under the default configuration: first alone, then while further processes import beside
the one that measures. The file has the median step of each process in ns, with its interval.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from profiler_kit.measurement.sweep import measure_visits
from profiler_kit.measurement.visits import Visit
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.samples import Interval
from profiler_kit.records.target import TargetSpec
from profiler_kit.worker.environment import pick_device

ROOT: Final = Path(__file__).resolve().parents[2]
DEFAULT: Final = RunConfig(name="default", enabled=True, benchmark=False, deterministic=False, allow_tf32=True)
TARGETS: Final = {
    "MNIST with loader": TargetSpec(spec=str(ROOT / "models" / "mnist_cnn.py")),
    "ResNet-50, batch 1": TargetSpec(spec=str(ROOT / "models" / "resnet.py"), batch=1),
    "GPT, batch 1": TargetSpec(spec=str(ROOT / "models" / "transformer.py"), batch=1),
    "ConvNet V1": TargetSpec(spec=str(ROOT / "models" / "convnet_v1.py")),
}


def record(spec: TargetSpec, device: str, processes: int, ahead: int, budget_s: float) -> Iterator[Interval]:
    """Yield the median step of `processes` fresh processes, with up to `ahead` others importing beside the one that measures."""
    visits = [Visit(config=DEFAULT, budget_s=budget_s, checks=False, again=True) for _ in range(processes)]
    finished = measure_visits(
        spec, visits, device=device, on_start=lambda _: None, on_progress=lambda *_: None, ahead=ahead
    )
    for visit in finished:
        if visit.run.step_ns is None:
            raise SystemExit(f"{spec.spec}: {visit.run.failure}")
        yield visit.run.step_ns


def main(argv: list[str]) -> int:
    """Record all targets and write the file after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument(
        "--budget", type=float, default=1.0, metavar="S", help="seconds of steps per process (default: 1)"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", nargs="*", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument(
        "--ahead", nargs="*", type=int, default=[0, 3], help="processes that import meanwhile (default: 0 3)"
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args(argv)
    device = pick_device(args.device)
    rows: list[dict[str, Any]] = []
    for name in args.only:
        for ahead in args.ahead:
            steps = list(record(TARGETS[name], device, args.processes, ahead, args.budget))
            rows.append({"target": name, "ahead": ahead, "processes": [asdict(step) for step in steps]})
            args.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
            print(name, f"ahead={ahead}", *(f"{step.median / 1e6:.3f}" for step in steps), file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
