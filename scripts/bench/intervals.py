"""How often an interval holds the true gain, by ways to make one, in simulated processes::

python -m scripts.bench.intervals
python -m scripts.bench.intervals --offset 0.3 --draws 1000
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Final

from tabulate import tabulate

from profiler_kit.statistics.intervals import gain_of_processes

Side = Sequence[Sequence[int]]

STEP_NS, STEPS = 10_000_000, 100
TRUE_PERCENT: Final = 5.0
RESAMPLES: Final = 200


def process(draw: random.Random, step_ns: float, offset: float, noise: float) -> list[int]:
    """A process's steps: its own offset, and noise to one side, as interruptions make it."""
    own = step_ns * math.exp(draw.gauss(0, offset))
    return [round(own * (1 + abs(draw.gauss(0, noise)))) for _ in range(STEPS)]


def by_student(before: Side, after: Side) -> tuple[float, float]:
    """The interval that the tool gives."""
    found = gain_of_processes(before, after)
    return found.low, found.high


def by_steps(before: Side, after: Side) -> tuple[float, float]:
    """One process a side, its steps resampled."""
    return by_student(before[:1], after[:1])


def by_processes_and_steps(before: Side, after: Side) -> tuple[float, float]:
    """Processes resampled, then steps within each."""
    draw = random.Random(0)

    def resampled(side: Side) -> float:
        chosen = draw.choices(side, k=len(side))
        return statistics.fmean(math.log(statistics.median(draw.choices(steps, k=len(steps)))) for steps in chosen)

    gains = sorted(-100 * math.expm1(resampled(after) - resampled(before)) for _ in range(RESAMPLES))
    cut = round(RESAMPLES * 0.025)
    return gains[cut], gains[-1 - cut]


WAYS: Final[dict[str, Callable[[Side, Side], tuple[float, float]]]] = {
    "bootstrap of the steps, one process a side": by_steps,
    "bootstrap of processes, then steps": by_processes_and_steps,
    "Student's t over process medians (used)": by_student,
}


def coverage(draws: int, offset: float, noise: float) -> dict[str, float]:
    """The share of `draws` in which each way's interval held the true gain."""
    draw = random.Random(1)
    held = dict.fromkeys(WAYS, 0)
    for _ in range(draws):
        before = [process(draw, STEP_NS, offset, noise) for _ in range(2)]
        after = [process(draw, STEP_NS * (1 - TRUE_PERCENT / 100), offset, noise) for _ in range(2)]
        for name, way in WAYS.items():
            low, high = way(before, after)
            held[name] += low <= TRUE_PERCENT <= high
    return {name: count / draws for name, count in held.items()}


def main(argv: list[str]) -> int:
    """Prints the table."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--draws", type=int, default=300)
    line.add_argument("--offset", type=float, default=0.5, metavar="PERCENT", help="between processes (0.5)")
    line.add_argument("--noise", type=float, default=2.0, metavar="PERCENT", help="between steps, to one side (2)")
    args = line.parse_args(argv)
    found = coverage(args.draws, args.offset / 100, args.noise / 100)
    rows = [(name, f"{100 * share:.0f} %") for name, share in found.items()]
    print(tabulate(rows, headers=("interval", "holds the true gain (nominally 95 %)"), disable_numparse=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
