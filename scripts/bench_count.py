"""How long counting takes, beside a bare pass over meta tensors and beside other counters.

All contenders take turns inside one run, and the medians of CPU time are compared, so that the ratios hold on a busy
machine. With the package installed::

    python scripts/bench_count.py [--repeats 7] [--models llama_7b] [--phases forward]

A contender is one line in `CONTENDERS`: its name, and a function of a `Case` that returns what is to be timed, or None
where it cannot take part. The first is the floor that the ratios are taken against.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

import torch
from bench_models import MODELS
from tabulate import tabulate
from torch.utils.flop_counter import FlopCounterMode

from profiler_kit.counting import count_target
from profiler_kit.target import Target, from_model

Phases = Literal["forward", "forward+backward"]
PHASES: Final[tuple[Phases, ...]] = ("forward", "forward+backward")
Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Case:
    """A network on meta tensors, and how much of its step is run: the forward pass alone, or backward too."""

    name: str
    phases: Phases
    target: Target

    def step(self) -> None:
        """The bare pass: what any counter that runs the model must do at least, one would think."""
        inputs = self.target.batch
        if self.phases == "forward":
            with torch.no_grad():
                self.target.model(*inputs.args)
            return
        self.target.model(*inputs.args).sum().backward()
        self.target.model.zero_grad(set_to_none=True)


def made(name: str, phases: Phases) -> Case:
    """The case of a network of `bench_models`."""
    model, inputs = MODELS[name]()
    if phases == "forward":
        return Case(name, phases, from_model(model, inputs, mode="infer"))
    return Case(name, phases, from_model(model, inputs, loss="sum", optimizer="adamw"))


def with_torch_counter(case: Case) -> Work:
    """torch's own counter, which attributes FLOPs to modules too."""

    def count() -> None:
        with FlopCounterMode(display=False):
            case.step()

    return count


CONTENDERS: Final[dict[str, Callable[[Case], Work | None]]] = {
    "bare": lambda case: case.step,
    "FlopCounterMode": with_torch_counter,
    "kit": lambda case: lambda: count_target(case.target),
    "kit + memory": lambda case: lambda: count_target(case.target),
}


def main() -> None:
    """Prints one row per network and amount of work: CPU time in ms, and the ratio to the bare pass."""
    parser = argparse.ArgumentParser(description="Counting against a bare pass and against other counters.")
    parser.add_argument("--repeats", type=int, default=7, help="rounds; the median is shown (default 7)")
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=[*MODELS], metavar="NAME", help=", ".join(MODELS)
    )
    parser.add_argument(
        "--phases", nargs="+", choices=PHASES, default=[*PHASES], metavar="PART", help=", ".join(PHASES)
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        row(made(name, phases), tuple(CONTENDERS), options.repeats)
        for name in options.models
        for phases in options.phases
    ]
    floor, *others = CONTENDERS
    heads = ["network", "what", f"{floor} ms", *(head for name in others for head in (f"{name} ms", "ratio"))]
    print(f"torch {torch.__version__}, one thread, medians of {options.repeats} interleaved rounds of CPU time")
    print(tabulate(rows, headers=heads, floatfmt=".2f"))


def row(case: Case, names: Sequence[str], repeats: int) -> list[str | float | None]:
    """A case's times under the contenders of these names, and their ratios to the first."""
    floor, *others = timed([CONTENDERS[name](case) for name in names], repeats)
    assert floor is not None, "the bare pass always takes part"
    figures = [figure for each in others for figure in ((None, None) if each is None else (each, each / floor))]
    return [case.name, case.phases, floor, *figures]


def timed(contenders: Sequence[Work | None], repeats: int) -> list[float | None]:
    """The median CPU time of each in ms, taken in turns after a first round that fills caches; None for one that is None."""
    times: list[list[float]] = [[] for _ in contenders]
    for turn in range(repeats + 1):
        for taken, work in zip(times, contenders, strict=True):
            if work is None:
                continue
            started = time.process_time()
            work()
            if turn:
                taken.append((time.process_time() - started) * 1e3)
    return [median(taken) if taken else None for taken in times]


if __name__ == "__main__":
    main()
