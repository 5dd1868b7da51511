"""Measure how often the interval of each method contains the true gain, in simulated processes::

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

from profiler_kit.statistics.intervals import process_gain

Side = Sequence[Sequence[int]]

STEP_NS, STEP_COUNT = 10_000_000, 100
TRUE_GAIN_PERCENT: Final = 5.0
RESAMPLES: Final = 200


def simulate_process(random_: random.Random, step_ns: float, offset: float, noise: float) -> list[int]:
    """Simulate the steps of one process: an offset per process, and one-sided noise per step, as from interruptions."""
    process_ns = step_ns * math.exp(random_.gauss(0, offset))
    return [round(process_ns * (1 + abs(random_.gauss(0, noise)))) for _ in range(STEP_COUNT)]


def by_student(before: Side, after: Side) -> tuple[float, float]:
    """Return the interval that profiler_kit uses."""
    gain = process_gain(before, after)
    return gain.low, gain.high


def by_steps(before: Side, after: Side) -> tuple[float, float]:
    """Resample the steps of one process per side."""
    return by_student(before[:1], after[:1])


def by_processes_and_steps(before: Side, after: Side) -> tuple[float, float]:
    """Resample processes, then steps within each process."""
    random_ = random.Random(0)

    def resample(side: Side) -> float:
        processes = random_.choices(side, k=len(side))
        return statistics.fmean(
            math.log(statistics.median(random_.choices(steps, k=len(steps)))) for steps in processes
        )

    gains = sorted(-100 * math.expm1(resample(after) - resample(before)) for _ in range(RESAMPLES))
    cut = round(RESAMPLES * 0.025)
    return gains[cut], gains[-1 - cut]


METHODS: Final[dict[str, Callable[[Side, Side], tuple[float, float]]]] = {
    "bootstrap of steps, one process per side": by_steps,
    "bootstrap of processes, then steps": by_processes_and_steps,
    "Student's t over process medians (used)": by_student,
}


def measure_coverage(draws: int, offset: float, noise: float) -> dict[str, float]:
    """Return, per method, the share of `draws` whose interval contains the true gain."""
    random_ = random.Random(1)
    hits = dict.fromkeys(METHODS, 0)
    for _ in range(draws):
        before = [simulate_process(random_, STEP_NS, offset, noise) for _ in range(2)]
        after = [simulate_process(random_, STEP_NS * (1 - TRUE_GAIN_PERCENT / 100), offset, noise) for _ in range(2)]
        for name, method in METHODS.items():
            low, high = method(before, after)
            hits[name] += low <= TRUE_GAIN_PERCENT <= high
    return {name: count / draws for name, count in hits.items()}


def main(argv: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument(
        "--offset",
        type=float,
        default=0.5,
        metavar="PERCENT",
        help="standard deviation between processes (default: 0.5)",
    )
    parser.add_argument(
        "--noise", type=float, default=2.0, metavar="PERCENT", help="one-sided noise between steps (default: 2)"
    )
    args = parser.parse_args(argv)
    coverage = measure_coverage(args.draws, args.offset / 100, args.noise / 100)
    rows = [(name, f"{100 * share:.0f} %") for name, share in coverage.items()]
    print(tabulate(rows, headers=("interval", "contains the true gain (nominal: 95 %)"), disable_numparse=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
