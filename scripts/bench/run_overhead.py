"""What `run` costs the program that it runs: ``python -m scripts.bench.run_overhead``.

Runs the same training program alone, and with `run`: waiting for a request (``--later``), before its first recorded step
(``--at``), in timed steps, and after the report; several times in turn. Prints the median step of each, and the ratios to the
program alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

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


def step_us(words: tuple[str, ...] | None, folder: Path, device: str) -> float:
    """The median step in us of one process. `words`: options of `run`; None for the program alone."""
    script = folder / "program.py"
    script.write_text(PROGRAM)
    run = [] if words is None else ["-m", "profiler_kit", "run", "-q", "--out", str(folder / "out"), *words]
    command = [sys.executable, *run, str(script), device, str(STEPS)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return statistics.median(map(float, done.stdout.split()[-LAST:])) * 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7, help="processes of each kind, in turn (default: 7)")
    options = parser.parse_args()
    samples: dict[str, list[float]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for name, words in VARIANTS.items():
                samples[name].append(step_us(words, Path(folder), options.device))
    alone = statistics.median(samples["alone"])
    for name, values in samples.items():
        ratios = [value / base for value, base in zip(values, samples["alone"], strict=True)]
        print(f"{name:26} {statistics.median(values):9.1f} us  {statistics.median(values) / alone:.3f}", end="  ")
        print(f"pairs {min(ratios):.3f} to {max(ratios):.3f}, median {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
