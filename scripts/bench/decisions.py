"""Measure how often the verdict on two sides is wrong, and how small a difference it finds, with recorded noise::

    python -m scripts.bench.decisions
    python -m scripts.bench.decisions --noise noise.json --configs 9 --draws 5000

Processes are drawn from those that `scripts.bench.record_noise` recorded on one host, with replacement, for every
configuration of a report. All configurations are equal; one of them is then made slower by 5, 10 and 20 %. *False* is the
share of the pairs of equal configurations that are reported as different. *Found* is the share of slower ones that are.
`simulated` draws from a normal distribution instead, with a drift of the clock by 1 % over the report.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tabulate import tabulate

from profiler_kit.records.samples import Interval
from profiler_kit.statistics.differences import DEVICE_BOUND, HOST_BOUND, Difference, Spread, compare_times, spread_of

RECORDED: Final = Path(__file__).with_name("recorded_noise.json")
SLOWER: Final = (0.05, 0.10, 0.20)
STEP_NS, SIMULATED_SPREAD, SIMULATED_DRIFT = 10_000_000, 0.007, 0.01

Draw = Callable[[random.Random, float], Interval]  # a process at a position of the report, from 0 to 1


def drawn_from(processes: Sequence[Interval]) -> Draw:
    """Return a function that draws one of the recorded `processes`, wherever in the report it is."""
    return lambda chance, _: chance.choice(processes)


def simulated(chance: random.Random, position: float) -> Interval:
    """Return a process whose kernels fill the step."""
    ns = round(STEP_NS * (1 + SIMULATED_DRIFT * position) * math.exp(chance.gauss(0, SIMULATED_SPREAD)))
    return Interval(median=ns, low=round(0.998 * ns), high=round(1.002 * ns))


def slowed(step: Interval, share: float) -> Interval:
    """Return `step` made longer by `share`."""
    factor = 1 + share
    return Interval(median=round(step.median * factor), low=round(step.low * factor), high=round(step.high * factor))


def draw_report(draw: Draw, chance: random.Random, configs: int, processes: int) -> list[list[Interval]]:
    """Return the processes of every configuration, run in interleaved order."""
    sides: list[list[Interval]] = [[] for _ in range(configs)]
    for number in range(configs * processes):
        turn, index = divmod(number, configs)
        config = index if turn % 2 == 0 else configs - 1 - index
        sides[config].append(draw(chance, number / (configs * processes)))
    return sides


def verdicts(sides: list[list[Interval]], moderation: Spread) -> list[Difference]:
    """Return the difference between the first configuration and each other one."""
    pooled = sum((spread_of(side) for side in sides), Spread())
    return [compare_times(sides[0], side, pooled, moderation) for side in sides[1:]]


def measure(draw: Draw, moderation: Spread, *, configs: int, processes: int, draws: int) -> list[str]:
    """Return the cells of one row: the smallest change that counts, false differences, and those found by size."""
    chance = random.Random(1)
    false, pairs, limits = 0, 0, []
    hits = dict.fromkeys(SLOWER, 0)
    for _ in range(draws):
        sides = draw_report(draw, chance, configs, processes)
        outcomes = verdicts(sides, moderation)
        false += sum(outcome.is_sure for outcome in outcomes)
        pairs += len(outcomes)
        limits += [outcome.limit for outcome in outcomes if outcome.limit is not None]
        for share in SLOWER:
            changed = [*sides[:-1], [slowed(step, share) for step in sides[-1]]]
            hits[share] += verdicts(changed, moderation)[-1].outcome == "worse"
    shares = [f"{100 * hits[share] / draws:.0f} %" for share in SLOWER]
    return [f"{100 * statistics.median(limits):.1f} %", f"{100 * false / pairs:.2f} %", *shares]


def main(argv: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=Path, default=RECORDED, help="file of scripts.bench.record_noise")
    parser.add_argument("--configs", type=int, default=3, help="configurations of a report (default: 3)")
    parser.add_argument(
        "--processes", type=int, nargs="*", default=[2, 4, 8], help="processes of each (default: 2 4 8)"
    )
    parser.add_argument("--draws", type=int, default=1000)
    args = parser.parse_args(argv)
    sources: list[tuple[str, Draw, Spread]] = [("simulated, kernels fill the step", simulated, DEVICE_BOUND)]
    for row in json.loads(args.noise.read_text(encoding="utf-8")):
        steps = [Interval(**step) for step in row["processes"]]
        beside = " beside importing processes" if row["ahead"] else ""
        sources.append((f"{row['target']}{beside}", drawn_from(steps), HOST_BOUND))
    rows = [
        [name, str(count), *measure(draw, moderation, configs=args.configs, processes=count, draws=args.draws)]
        for name, draw, moderation in sources
        for count in args.processes
    ]
    heads = ("noise", "processes", "smallest change", "false", *(f"found {100 * share:.0f} %" for share in SLOWER))
    print(tabulate(rows, headers=heads, disable_numparse=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
