"""Measure how often the verdict on two sides is wrong, and how small a difference it finds, with recorded noise::

    python -m scripts.bench.decisions
    python -m scripts.bench.decisions --estimators
    python -m scripts.bench.decisions --noise noise.json --configs 9 --draws 5000

Processes are drawn from those that `scripts.bench.record_noise` recorded, with replacement, for every configuration of a report.
All configurations are equal; one of them is then made slower by 5, 10 and 20 %. *False* is the share of the pairs of equal
configurations that are reported as different. *Found* is the share of slower ones that are. `simulated` draws from a normal
distribution instead, with a drift of the clock by 1 % over the report.

A fixed number of processes is measured, or as many as `statistics.sequential` asks for ("up to 8"): after each pass over the
configurations, those that are decided get no further process. *Processes* is then their mean number for each configuration, and
*false* counts the verdicts at the end, whichever pass was the last.

`--estimators` compares estimators of a process's step: the median, lower quantiles and the minimum of its timed steps.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tabulate import tabulate

from profiler_kit.records.samples import Interval
from profiler_kit.statistics.differences import (
    DEVICE_BOUND,
    HOST_BOUND,
    MAX_PROCESSES,
    Difference,
    Spread,
    compare_times,
    spread_of,
)
from profiler_kit.statistics.intervals import HOST_QUANTILE, quantile_interval
from profiler_kit.statistics.sequential import is_decided

RECORDED: Final = Path(__file__).with_name("recorded_noise.json")
SLOWER: Final = (0.05, 0.10, 0.20)
STEP_NS, SIMULATED_SPREAD, SIMULATED_DRIFT = 10_000_000, 0.007, 0.01
QUANTILES: Final = {"minimum": 0.0, "lower 10 %": 0.10, "lower quartile": 0.25, "median": 0.5}
SEQUENTIAL: Final = 0  # instead of a fixed number of processes

Draw = Callable[[random.Random, float], Interval]  # a process at a position of the report, from 0 to 1


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of noise: its name, how to draw a process, and the moderation that holds for it."""

    name: str
    draw: Draw
    moderation: Spread


def drawn_from(processes: Sequence[Sequence[int]], quantile: float = HOST_QUANTILE) -> Draw:
    """Return a function that draws one of the recorded `processes`, each the timed steps, wherever in the report it is.

    A drawn process differs a little from the recorded one (smoothed bootstrap), because no two processes take exactly the same
    time. The spread between processes stays that of the recording.
    Source: Silverman and Young, The bootstrap: to smooth or not to smooth, 1987.
    """
    steps = [quantile_interval(steps_ns, quantile) for steps_ns in processes]
    center = statistics.fmean(math.log(step.median) for step in steps)
    spread = spread_of(steps).deviation or 0.0
    width = len(steps) ** -0.2  # Silverman's rule, of the spread

    def draw(chance: random.Random, _: float) -> Interval:
        step = chance.choice(steps)
        offset = math.log(step.median) - center
        smoothed = (offset + chance.gauss(0, width * spread)) / math.sqrt(1 + width**2)
        return slowed(step, math.exp(smoothed - offset) - 1)

    return draw


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


def measured_until_decided(pool: list[list[Interval]], moderation: Spread) -> list[list[Interval]]:
    """Return the processes of every configuration in `pool` that would have been measured: two, then more where undecided."""
    counts = [min(2, len(side)) for side in pool]
    while True:
        sides = [side[:count] for side, count in zip(pool, counts, strict=True)]
        undecided = [i + 1 for i, outcome in enumerate(verdicts(sides, moderation)) if not is_decided(outcome)]
        undecided = [i for i in undecided if counts[i] < len(pool[i])]
        if not undecided:
            return sides
        for index in {0, *undecided}:
            counts[index] = min(counts[index] + 1, len(pool[index]))


def verdicts(sides: list[list[Interval]], moderation: Spread) -> list[Difference]:
    """Return the difference between the first configuration and each other one."""
    pooled = sum((spread_of(side) for side in sides), Spread())
    return [compare_times(sides[0], side, pooled, moderation) for side in sides[1:]]


def measure(source: Source, *, configs: int, processes: int, draws: int) -> list[str]:
    """Return the cells of one row: processes, the smallest change that counts, false differences, and those found by size.

    `processes`: of each configuration; `SEQUENTIAL` measures until all are decided.
    """
    chance = random.Random(1)
    false, pairs, limits, counts = 0, 0, [], []
    hits = dict.fromkeys(SLOWER, 0)

    def measured(pool: list[list[Interval]]) -> list[list[Interval]]:
        return pool if processes else measured_until_decided(pool, source.moderation)

    for _ in range(draws):
        pool = draw_report(source.draw, chance, configs, processes or MAX_PROCESSES)
        sides = measured(pool)
        counts.append(statistics.fmean(map(len, sides)))
        outcomes = verdicts(sides, source.moderation)
        false += sum(outcome.is_sure for outcome in outcomes)
        pairs += len(outcomes)
        limits += [outcome.limit for outcome in outcomes if outcome.limit is not None]
        for share in SLOWER:
            changed = measured([*pool[:-1], [slowed(step, share) for step in pool[-1]]])
            hits[share] += verdicts(changed, source.moderation)[-1].outcome == "worse"
    shares = [f"{100 * hits[share] / draws:.0f} %" for share in SLOWER]
    number = str(processes) if processes else f"up to {MAX_PROCESSES}: {statistics.fmean(counts):.1f}"
    return [number, f"{100 * statistics.median(limits):.1f} %", f"{100 * false / pairs:.2f} %", *shares]


def recorded(file: Path, quantile: float | None = None) -> Iterator[Source]:
    """Yield the recorded kinds of noise, each process estimated by a `quantile` of its steps, or as reports do."""
    for row in json.loads(file.read_text(encoding="utf-8")):
        draw = drawn_from(row["processes"], HOST_QUANTILE if quantile is None else quantile)
        yield Source(row["target"], draw, HOST_BOUND)


def main(argv: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=Path, default=RECORDED, help="file of scripts.bench.record_noise")
    parser.add_argument("--configs", type=int, default=3, help="configurations of a report (default: 3)")
    parser.add_argument(
        "--processes", type=int, nargs="*", default=[2, 4, 8], help="processes of each (default: 2 4 8, and as needed)"
    )
    parser.add_argument("--estimators", action="store_true", help="compare estimators of a process's step")
    parser.add_argument("--draws", type=int, default=1000)
    args = parser.parse_args(argv)
    heads = ["noise", "processes", "smallest change", "false", *(f"found {100 * share:.0f} %" for share in SLOWER)]
    if args.estimators:
        heads.insert(1, "estimator")
        heads.insert(2, "spread")
        rows = [
            [name, estimator, f"{100 * spread:.1f} %", *measure(source, configs=args.configs, processes=0, draws=args.draws)]
            for estimator, quantile in QUANTILES.items()
            for (name, spread), source in zip(
                spreads(args.noise, quantile), recorded(args.noise, quantile), strict=True
            )
        ]  # fmt: skip
        rows.sort(key=lambda row: row[0])
    else:
        sources = [
            Source("simulated, kernels fill the step", simulated, DEVICE_BOUND),
            *recorded(args.noise),
        ]
        rows = [
            [source.name, *measure(source, configs=args.configs, processes=count, draws=args.draws)]
            for source in sources
            for count in (*args.processes, *((SEQUENTIAL,) if source.moderation is HOST_BOUND else ()))
        ]
    print(tabulate(rows, headers=heads, disable_numparse=True))
    return 0


def spreads(file: Path, quantile: float) -> list[tuple[str, float]]:
    """Return the standard deviation between the processes of every recorded target, as a share of the step."""
    deviations = []
    for row in json.loads(file.read_text(encoding="utf-8")):
        steps = [quantile_interval(steps_ns, quantile) for steps_ns in row["processes"]]
        deviations.append((row["target"], spread_of(steps).deviation or 0.0))
    return deviations


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
