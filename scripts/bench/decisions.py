"""Measure how often the verdict on two sides is wrong, and how small a difference it finds, with recorded noise::

    python -m scripts.bench.decisions
    python -m scripts.bench.decisions --estimators
    python -m scripts.bench.decisions --noise noise.json --configs 9 --draws 5000

Processes are drawn from recorded ones, with replacement, for every configuration of a report. scripts/bench/record_noise.py of
commit 474ac72c recorded them, in `recorded_noise.json`.
All configurations are equal; one of them is then made slower by 5, 10 and 20 %. *False* is the share of the pairs of equal
configurations that are reported as different. *Found* is the share of slower ones that are. `simulated` draws from a normal
distribution instead, with a drift of the clock by 1 % over the report.

A fixed number of processes is measured, or as many as `statistics.sequential` asks for ("up to 8"): after each pass over the
configurations, those that are decided get no further process. *Processes* is then their mean number for each configuration, and
*false* counts the verdicts at the end, whichever pass was the last.

Processes that took turns are compared by the one of two estimators that varies less, as in a report. `--estimators` prints how
far the processes of each recording differ by each estimator of a process's step.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tabulate import tabulate

from profiler_kit.records.samples import Difference, Interval
from profiler_kit.statistics.differences import (
    DEVICE_BOUND,
    HOST_BOUND,
    MAX_PROCESSES,
    Spread,
    compare_times,
    spread_of,
)
from profiler_kit.statistics.intervals import quantile_interval, trimmed_mean_interval
from profiler_kit.statistics.noise import ESTIMATORS, TURN_SAMPLES, Sample, lower_decile, steadiest
from profiler_kit.statistics.sequential import is_decided

RECORDED: Final = Path(__file__).with_name("recorded_noise.json")
SLOWER: Final = (0.05, 0.10, 0.20)
STEP_NS, SIMULATED_SPREAD, SIMULATED_DRIFT = 10_000_000, 0.007, 0.01
SEQUENTIAL: Final = 0  # instead of a fixed number of processes

Estimator = Callable[[Sequence[int]], Interval]  # of a process's step, from its timed steps
Process = Mapping[Sample, Interval]  # its step, by each estimator that a report would use
Draw = Callable[[random.Random, float], Process]  # a process at a position of the report, from 0 to 1

OF_SERIES, OF_TURNS = (Sample.LOW,), TURN_SAMPLES
COMPARED: Final[Mapping[str, Estimator]] = {
    "minimum": lambda steps_ns: quantile_interval(steps_ns, 0.0),
    "lower decile": lower_decile,
    "lower quartile": lambda steps_ns: quantile_interval(steps_ns, 0.25),
    "median": lambda steps_ns: quantile_interval(steps_ns, 0.5),
    "trimmed mean": trimmed_mean_interval,
}


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of noise: its name, how to draw a process, the moderation that holds for it, and whether processes took turns."""

    name: str
    draw: Draw
    moderation: Spread
    takes_turns: bool = False


def drawn_from(processes: Sequence[Sequence[int]], samples: Sequence[Sample] = OF_SERIES) -> Draw:
    """Return a function that draws one of the recorded `processes`, each the timed steps, wherever in the report it is.

    A drawn process differs a little from the recorded one (smoothed bootstrap), because no two processes take exactly the same
    time. The spread between processes stays that of the recording.
    Source: Silverman and Young, The bootstrap: to smooth or not to smooth, 1987.
    """
    steps = [{sample: ESTIMATORS[sample](steps_ns) for sample in samples} for steps_ns in processes]
    sides = {sample: [step[sample] for step in steps] for sample in samples}
    centers = {sample: statistics.fmean(math.log(step.median) for step in side) for sample, side in sides.items()}
    spreads = {sample: spread_of(side).deviation or 0.0 for sample, side in sides.items()}
    width = len(steps) ** -0.2  # Silverman's rule, of the spread

    def draw(chance: random.Random, _: float) -> Process:
        process = chance.choice(steps)
        estimates = {}
        for sample, step in process.items():
            offset = math.log(step.median) - centers[sample]
            smoothed = (offset + chance.gauss(0, width * spreads[sample])) / math.sqrt(1 + width**2)
            estimates[sample] = longer(step, math.exp(smoothed - offset))
        return estimates

    return draw


def simulated(chance: random.Random, position: float) -> Process:
    """Return a process whose kernels fill the step."""
    ns = round(STEP_NS * (1 + SIMULATED_DRIFT * position) * math.exp(chance.gauss(0, SIMULATED_SPREAD)))
    return {Sample.MEDIAN: Interval(median=ns, low=round(0.998 * ns), high=round(1.002 * ns))}


def slowed(process: Process, share: float) -> Process:
    """Return `process` with its step made longer by `share`."""
    return {sample: longer(step, 1 + share) for sample, step in process.items()}


def longer(step: Interval, factor: float) -> Interval:
    """Return `step` times `factor`."""
    return Interval(median=round(step.median * factor), low=round(step.low * factor), high=round(step.high * factor))


def draw_report(draw: Draw, chance: random.Random, configs: int, processes: int) -> list[list[Process]]:
    """Return the processes of every configuration, run in interleaved order."""
    sides: list[list[Process]] = [[] for _ in range(configs)]
    for number in range(configs * processes):
        turn, index = divmod(number, configs)
        config = index if turn % 2 == 0 else configs - 1 - index
        sides[config].append(draw(chance, number / (configs * processes)))
    return sides


def measured_until_decided(pool: list[list[Process]], moderation: Spread) -> list[list[Process]]:
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


def verdicts(sides: list[list[Process]], moderation: Spread) -> list[Difference]:
    """Return the difference between the first configuration and each other one, by the estimator that varies least."""
    samples = list(sides[0][0])
    steps = {sample: [[process[sample] for process in side] for side in sides] for sample in samples}
    pooled = {sample: sum(map(spread_of, steps[sample]), Spread()) for sample in samples}
    sample = steadiest(pooled) or samples[0]
    base, *others = steps[sample]
    return [compare_times(base, side, pooled[sample], moderation) for side in others]


def measure(source: Source, *, configs: int, processes: int, draws: int) -> list[str]:
    """Return the cells of one row: processes, the smallest visible change, false differences, and those found by size.

    `processes`: of each configuration; `SEQUENTIAL` measures until all are decided.
    """
    chance = random.Random(1)
    false, pairs, visible, counts = 0, 0, [], []
    hits = dict.fromkeys(SLOWER, 0)

    def measured(pool: list[list[Process]]) -> list[list[Process]]:
        return pool if processes else measured_until_decided(pool, source.moderation)

    for _ in range(draws):
        pool = draw_report(source.draw, chance, configs, processes or MAX_PROCESSES)
        sides = measured(pool)
        counts.append(statistics.fmean(map(len, sides)))
        outcomes = verdicts(sides, source.moderation)
        false += sum(outcome.is_sure for outcome in outcomes)
        pairs += len(outcomes)
        visible += [outcome.smallest_visible for outcome in outcomes if outcome.smallest_visible is not None]
        for share in SLOWER:
            changed = measured([*pool[:-1], [slowed(process, share) for process in pool[-1]]])
            hits[share] += verdicts(changed, source.moderation)[-1].outcome == "worse"
    shares = [f"{100 * hits[share] / draws:.0f} %" for share in SLOWER]
    number = str(processes) if processes else f"up to {MAX_PROCESSES}: {statistics.fmean(counts):.1f}"
    return [number, f"{100 * statistics.median(visible):.1f} %", f"{100 * false / pairs:.2f} %", *shares]


def recorded(file: Path) -> Iterator[Source]:
    """Yield the recorded kinds of noise, each process estimated as reports do."""
    for row in json.loads(file.read_text(encoding="utf-8")):
        draw = drawn_from(row["processes"], OF_TURNS if row["turns"] else OF_SERIES)
        yield Source(row["target"], draw, HOST_BOUND, row["turns"])


def main(argv: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=Path, default=RECORDED, help="file of recorded processes")
    parser.add_argument("--configs", type=int, default=3, help="configurations of a report (default: 3)")
    parser.add_argument(
        "--processes", type=int, nargs="*", default=[2, 4, 8], help="processes of each (default: 2 4 8, and as needed)"
    )
    parser.add_argument("--estimators", action="store_true", help="compare estimators of a process's step")
    parser.add_argument("--draws", type=int, default=1000)
    args = parser.parse_args(argv)
    heads = ["noise", "processes", "smallest change", "false", *(f"found {100 * share:.0f} %" for share in SLOWER)]
    if args.estimators:
        heads = ["noise", *COMPARED]
        rows = spreads(args.noise)
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


def spreads(file: Path) -> list[list[str]]:
    """Return a row for each recording: the standard deviation between its processes by each estimator, as a share of the step."""
    return [
        [
            row["target"],
            *(f"{100 * (spread_of([*map(of, row['processes'])]).deviation or 0.0):.1f} %" for of in COMPARED.values()),
        ]
        for row in json.loads(file.read_text(encoding="utf-8"))
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
