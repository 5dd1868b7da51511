"""What `run` costs the program that it runs: ``python -m scripts.bench.run_overhead``.

Runs the same training program alone, and with `run`: waiting for a request (``--later``), before its first recorded step
(``--at``), in timed steps, and after the report; several times in turn. Prints the median step of each, and the ratios to the
program alone of two figures: the median, and the first tenth of the sorted steps, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
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


def steps_us(words: tuple[str, ...] | None, folder: Path, device: str) -> Steps:
    """The steps of one process. `words`: options of `run`; None for the program alone."""
    script = folder / "program.py"
    script.write_text(PROGRAM)
    run = [] if words is None else ["-m", "profiler_kit", "run", "-q", "--out", str(folder / "out"), *words]
    command = [sys.executable, *run, str(script), device, str(STEPS)]
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    times = sorted(float(word) * 1e6 for word in done.stdout.split()[-LAST:])
    return Steps(statistics.median(times), times[LAST // 10])


def ratios(samples: Sequence[float], alone: Sequence[float]) -> str:
    """The median and the range of the ratios of processes that ran next to each other."""
    pairs = [sample / base for sample, base in zip(samples, alone, strict=True)]
    return f"{statistics.median(pairs):.3f} ({min(pairs):.3f} to {max(pairs):.3f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7, help="processes of each kind, in turn (default: 7)")
    options = parser.parse_args()
    samples: dict[str, list[Steps]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for name, words in VARIANTS.items():
                samples[name].append(steps_us(words, Path(folder), options.device))
    alone = samples["alone"]
    for name, steps in samples.items():
        median = ratios([step.median for step in steps], [step.median for step in alone])
        tenth = ratios([step.tenth for step in steps], [step.tenth for step in alone])
        step_us = statistics.median(step.median for step in steps)
        print(f"{name:26} {step_us:9.1f} us  median {median}  first tenth {tenth}")


if __name__ == "__main__":
    main()
