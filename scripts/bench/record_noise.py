"""Record how far fresh processes of one configuration differ, for the simulation in `scripts.bench.decisions`::

    python -m scripts.bench.record_noise --processes 12 -o noise.json

Every target runs in fresh processes under the default configuration. Batches of processes import together, and then measure
one after another while nothing else runs. `--ahead` lets further processes import beside the one that measures instead. With
`--turns`, all processes are one round and take turns, as where `analyze` finds that the step waits for the host. The file has the
timed steps of each process in ns.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from profiler_kit.measurement.sweep import measure_visits
from profiler_kit.measurement.turns import rounds
from profiler_kit.measurement.visits import Round, Visit
from profiler_kit.records.configs import RunConfig
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


def record(
    spec: TargetSpec, device: str, processes: int, batch: int, ahead: int, budget_s: float, takes_turns: bool
) -> Generator[tuple[int, ...], None, None]:
    """Yield the timed steps of `processes` fresh processes in ns.

    `batch` processes are prepared at a time while none measures, or `ahead` others while one does; or all, and they take turns.
    """
    further = Visit(config=DEFAULT, budget_s=budget_s, checks=False, again=True, further=True)
    visits: list[Visit | Round] = [replace(further) for _ in range(processes)]
    if takes_turns:
        measured = measure_visits(
            spec, [further], device=device, on_start=lambda _: None, on_progress=lambda *_: None, ahead=0
        )
        (first,) = measured
        copies = processes // 2  # of two configurations that are the same
        visits = list(rounds([(further,)], anchor=(further,), copies=copies, first=first.run, device=device))
    finished = measure_visits(
        spec,
        visits,
        device=device,
        on_start=lambda _: None,
        on_progress=lambda *_: None,
        ahead=ahead or batch - 1,
        may_overlap=lambda: ahead > 0,
    )
    with closing(finished):
        for visit in finished:
            if visit.run.step_ns is None:
                raise SystemExit(f"{spec.spec}: {visit.run.failure}")
            yield visit.run.steps_ns


def main(argv: list[str]) -> int:
    """Record all targets and write the file after each process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4, help="processes that are prepared together (default: 4)")
    parser.add_argument(
        "--budget", type=float, default=1.0, metavar="S", help="seconds of steps per process (default: 1)"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", nargs="*", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--ahead", type=int, default=0, help="processes that import while one measures (default: none)")
    parser.add_argument("--turns", action="store_true", help="processes take turns")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="S", help="seconds for each target")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args(argv)
    device = pick_device(args.device)
    rows: list[dict[str, Any]] = []
    for name in args.only:
        target = f"{name}, in turns" if args.turns else name
        rows.append({"target": target, "beside": args.ahead, "turns": args.turns, "processes": []})
        deadline_s = time.monotonic() + args.limit
        recording = record(TARGETS[name], device, args.processes, args.batch, args.ahead, args.budget, args.turns)
        with closing(recording) as processes:
            for steps_ns in processes:
                rows[-1]["processes"].append(steps_ns)
                write(rows, args.output)
                print(name, f"{sorted(steps_ns)[len(steps_ns) // 2] / 1e6:.3f} ms", file=sys.stderr, flush=True)
                if time.monotonic() > deadline_s:
                    break
    return 0


def write(rows: list[dict[str, Any]], file: Path) -> None:
    """Write `rows` with one line per process."""
    blocks = []
    for row in rows:
        lines = ",\n".join(json.dumps(steps_ns, separators=(",", ":")) for steps_ns in row["processes"])
        facts = json.dumps({name: value for name, value in row.items() if name != "processes"})
        blocks.append(f'{facts[:-1]}, "processes": [\n{lines}\n]}}')
    file.write_text("[\n" + ",\n".join(blocks) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
