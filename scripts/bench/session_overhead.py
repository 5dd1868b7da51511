"""What a session costs the loop around it: ``python -m scripts.bench.session_overhead``.

Prints the median step of the same loop without a session, in a session's timed steps, and after its recording is over, and
the ratios to the loop without one. The blocks are interleaved, so that a change of the machine's speed hits all alike.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

import profiler_kit

STEPS = 30


def small(device: str) -> tuple[nn.Module, torch.Tensor]:
    """A network whose step the host limits."""
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(64, 10)).to(device), torch.randn(32, 64, device=device)


def convolutions(device: str) -> tuple[nn.Module, torch.Tensor]:
    """A network of many modules whose step the device limits."""
    blocks = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()) for _ in range(8)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    size = 64 if device == "cuda" else 2
    return nn.Sequential(nn.Conv2d(3, 32, 3), *blocks, *head).to(device), torch.randn(size, 3, 48, 48, device=device)


def measure(build: Callable[[str], tuple[nn.Module, torch.Tensor]], device: str, blocks: int) -> dict[str, float]:
    """The median step in ms by kind of block."""
    model, x = build(device)
    y = torch.zeros(len(x), dtype=torch.int64, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

    def run(steps: int, end_step: Callable[[], None]) -> list[float]:
        durations = []
        for _ in range(steps):
            start = time.perf_counter()
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.item()
            loss.backward()
            optimizer.step()
            end_step()
            durations.append((time.perf_counter() - start) * 1e3)
        return durations

    run(2 * STEPS, lambda: None)
    samples: dict[str, list[float]] = {"without": [], "timed steps": [], "afterwards": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(blocks):
            samples["without"] += run(STEPS, lambda: None)
            # the last timed step includes the end of the recording, which is no part of the loop's speed
            with profiler_kit.session(model, folder, warmup=1, steps=STEPS + 1, traced=0, quiet=True) as s:
                run(1, s.step)
                samples["timed steps"] += run(STEPS, s.step)
                run(1, s.step)
                run(5, s.step)
                samples["afterwards"] += run(STEPS, s.step)
    return {name: statistics.median(values) for name, values in samples.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--blocks", type=int, default=5)
    options = parser.parse_args()
    for build in (small, convolutions):
        medians = measure(build, options.device, options.blocks)
        base = medians["without"]
        for name, median in medians.items():
            print(f"{options.device} {build.__name__:12} {name:12} {median:8.3f} ms  {median / base:.3f}")


if __name__ == "__main__":
    main()
