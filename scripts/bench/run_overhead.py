"""What `run` costs the program that it runs: ``python -m scripts.bench.run_overhead``.

Runs the same training program alone, and with `run`: waiting for a request (``--later``), before its first recorded step
(``--at``), in timed steps, and after the report; several times in turn. Prints the median step of each, and the ratios to the
program alone of two figures: the median, and the first tenth of the sorted steps, which other work on the machine disturbs less.

``--cores 0,2,4,6,8`` runs the processes of a round at once, each on a core of its own, which changes from round to round. Two
processes of the same kind differ by some percent, so many rounds say more than one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

PROGRAM: Final = """\
import sys, time, torch
from torch import nn
device, steps = sys.argv[1], int(sys.argv[2])
layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(64, 10)).to(device)
x, y = torch.randn(32, 64, device=device), torch.zeros(32, dtype=torch.int64, device=device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
times = []
for _ in range(steps):
    start = time.perf_counter()
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.item()
    loss.backward()
    optimizer.step()
    times.append(time.perf_counter() - start)
print(*times)
"""
STEPS: Final = 1200
LAST: Final = 1000  # of which these are compared; the report of the last kind is written before
VARIANTS: Final[dict[str, tuple[str, ...] | None]] = {
    "alone": None,
    "waiting for a request": ("--later",),
    "before the recorded steps": ("--at", str(10 * STEPS)),
    "timed steps": ("--skip", "10", "--steps", str(STEPS)),
    "after the report": (),
}


class Steps(NamedTuple):
    """A step of one process in us: the median, and the end of the first tenth of all steps in the order of their times."""

    median: float
    tenth: float


def steps_us(kind: str, folder: Path, device: str, core: int | None = None) -> Steps:
    """The steps of one process of a `kind` of `VARIANTS`, on one `core` if that is given."""
    script, words = folder / "program.py", VARIANTS[kind]
    script.write_text(PROGRAM)
    run = [] if words is None else ["-m", "profiler_kit", "run", "-q", "--out", str(folder / f"out {kind}"), *words]
    pinned = ["taskset", "-c", str(core)] if core is not None else []
    command = [*pinned, sys.executable, *run, str(script), device, str(STEPS)]
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    times = sorted(float(word) * 1e6 for word in done.stdout.split()[-LAST:])
    return Steps(statistics.median(times), times[LAST // 10])


def round_of(number: int, folder: Path, device: str, cores: Sequence[int]) -> dict[str, Steps]:
    """The steps of one process of each kind: one after the other, or at once on `cores`."""
    if not cores:
        return {kind: steps_us(kind, folder, device) for kind in VARIANTS}
    turned = [cores[(place + number) % len(cores)] for place in range(len(VARIANTS))]
    with ThreadPoolExecutor(len(cores)) as pool:
        each = pool.map(lambda kind, core: steps_us(kind, folder, device, core), VARIANTS, turned)
        return dict(zip(VARIANTS, each, strict=True))


def ratios(samples: Sequence[float], alone: Sequence[float]) -> str:
    """The median and the range of the ratios of processes that ran next to each other."""
    pairs = [sample / base for sample, base in zip(samples, alone, strict=True)]
    return f"{statistics.median(pairs):.3f} ({min(pairs):.3f} to {max(pairs):.3f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7, help="processes of each kind, in turn (default: 7)")
    parser.add_argument(
        "--cores", type=lambda text: [int(core) for core in text.split(",")], default=[], metavar="LIST"
    )
    options = parser.parse_args()
    if options.cores and len(options.cores) < len(VARIANTS):
        parser.error(f"--cores needs {len(VARIANTS)} cores")
    samples: dict[str, list[Steps]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for name, steps in round_of(number, Path(folder), options.device, options.cores).items():
                samples[name].append(steps)
    alone = samples["alone"]
    for name, steps in samples.items():
        median = ratios([step.median for step in steps], [step.median for step in alone])
        tenth = ratios([step.tenth for step in steps], [step.tenth for step in alone])
        step_us = statistics.median(step.median for step in steps)
        print(f"{name:26} {step_us:9.1f} us  median {median}  first tenth {tenth}")


if __name__ == "__main__":
    main()
