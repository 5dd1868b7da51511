"""How long counting takes, beside a bare forward and backward on meta tensors and beside torch's own FLOP counter.

All contenders take turns inside one run, so that the ratios hold on a busy machine. With the package installed::

    python scripts/bench_count.py [--repeats 7]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from tabulate import tabulate
from torch.utils.flop_counter import FlopCounterMode

from profiler_kit.counting import count_target
from profiler_kit.records.target import TargetSpec
from profiler_kit.target import Target, load

MODELS = Path(__file__).resolve().parent.parent / "models"
CASES = ("convnet_v0.py", "unet.py", "resnet.py:resnet50", "transformer.py")


def main() -> None:
    """Prints one row per model: CPU time in ms, and the ratio to the bare step."""
    parser = argparse.ArgumentParser(description="Counting against a bare step and against torch's FlopCounterMode.")
    parser.add_argument("--repeats", type=int, default=7, help="rounds; the median is shown (default 7)")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    rows = [row(name, repeats) for name in CASES]
    heads = ["model", "bare ms", "torch counter", "ratio", "count", "ratio", "count + memory", "ratio"]
    print(tabulate(rows, headers=heads, floatfmt=".2f"))


def row(name: str, repeats: int) -> list[str | float]:
    """One model's times: bare, torch's counter, ours without and with the memory estimate."""
    target = load(TargetSpec(spec=str(MODELS / name)))
    contenders: tuple[Callable[[], object], ...] = (
        lambda: step(target),
        lambda: torch_count(target),
        lambda: count_target(target, memory=False),
        lambda: count_target(target),
    )
    times: list[list[float]] = [[] for _ in contenders]
    for contender in contenders:
        contender()  # imports and caches
    for _ in range(repeats):
        for taken, contender in zip(times, contenders, strict=True):
            started = time.process_time()
            contender()
            taken.append((time.process_time() - started) * 1e3)
    bare, *others = (median(taken) for taken in times)
    return [name, bare, *(figure for each in others for figure in (each, each / bare))]


def step(target: Target) -> None:
    """Forward, loss and backward, nothing else."""
    output = target.model(*target.batch.args, **target.batch.kwargs)
    target.loss(output, target.batch, target.labels_for(output)).backward()
    target.model.zero_grad(set_to_none=True)


def torch_count(target: Target) -> None:
    """The same under torch's counter, which attributes to modules too."""
    with FlopCounterMode(display=False):
        step(target)


if __name__ == "__main__":
    main()
