"""Host memory that grows with every new input shape."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.words import plural, sentences
from profiler_kit.records.laboratory import ShapeSchedule
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.units import text

# A cached plan takes about 200 KiB, and a shape needs three per convolution; less is an allocator's rounding.
LIMIT_BYTES: Final = 100 * 1024
# The first shapes also load kernels and libraries, which are there from then on.
SKIPPED: Final = 0.25
# Below six points the interval of a slope is all slopes between them, whatever they are.
FEWEST: Final = 6
# Of a normal distribution, both sides: 95 %.
Z: Final = 1.96
# What growth this makes, so that a reader sees what a slope means over a day of training.
MANY: Final = 10_000

DOC = f"""
From a run over changing shapes (`--shapes`): host memory after each first step of a shape, against the number of shapes so
far. It fires where the slope is above {text(LIMIT_BYTES, "bytes")} per new shape with its whole 95 % interval, and above
what each step over shapes seen before adds, interval against interval: memory that grows anyway is no cache of shapes.

The slope is the median of the slopes between all pairs of points, and its interval comes from their order (Sen, Journal of
the American Statistical Association 63, 1968): one library that is loaded on the way moves neither. The first quarter of
the shapes is left out, because it loads kernels. `low`; `medium` where {MANY:,} shapes would fill more than a gibibyte.
"""


@dataclass(frozen=True, slots=True)
class Slope:
    """Bytes per point, with its 95 % interval, over so many points."""

    bytes: float
    low: float
    high: float
    points: int


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for the schedule whose slope is surely the steepest."""
    found = [(schedule, slope) for schedule in report.schedules if (slope := _growth(schedule)) is not None]
    if not found:
        return
    schedule, slope = max(found, key=lambda item: item[1].low)
    grown = slope.bytes * MANY
    others = [f'Under "{s.config}" it is {text(other.bytes, "bytes")}.' for s, other in found if s is not schedule]
    yield RULE.finding(
        severity="medium" if grown > 2**30 else "low",
        title=f"Host memory grows by {text(slope.bytes, 'bytes')} with every new input shape",
        explanation=sentences(
            f'Under "{schedule.config}", over {plural(slope.points, "new shape")}, the slope is '
            f"{text(slope.low, 'bytes')} to {text(slope.high, 'bytes')}; {MANY:,} shapes would take {text(grown, 'bytes')}.",
            "What is kept per shape, plans of convolutions above all, is not given back.",
            *others,
        ),
        advice=_advice(schedule),
        evidence=(
            Evidence(name="host memory per new shape", value=slope.bytes, unit="bytes", where=schedule.config),
            Evidence(name="at least", value=slope.low, unit="bytes", where=schedule.config),
            Evidence(name="at most", value=slope.high, unit="bytes", where=schedule.config),
            Evidence(name="new shapes", value=slope.points, unit="count", where=schedule.config),
            *_ends(schedule),
        ),
    )


def _growth(schedule: ShapeSchedule) -> Slope | None:
    """The growth per new shape; None where it is not surely above the limit and above that of seen shapes' steps."""
    new = [step.rss_bytes for step in schedule.steps if not step.seen and step.rss_bytes is not None]
    seen = [step.rss_bytes for step in schedule.steps if step.seen and step.rss_bytes is not None]
    slope = slope_of(new[math.ceil(SKIPPED * len(new)) :])
    if slope is None or slope.low <= LIMIT_BYTES:
        return None
    anyway = slope_of(seen)
    return slope if anyway is None or slope.low > max(0.0, anyway.high) else None


def slope_of(values: Sequence[int]) -> Slope | None:
    """The slope of equally spaced `values` with its 95 % interval; None below six of them.

    Source: Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau", JASA 63 (1968), section 3.
    """
    count = len(values)
    if count < FEWEST:
        return None
    slopes = sorted((values[j] - values[i]) / (j - i) for i in range(count) for j in range(i + 1, count))
    width = Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(0, math.floor((len(slopes) - width) / 2) - 1)
    high = min(len(slopes) - 1, math.ceil((len(slopes) + width) / 2))
    return Slope(statistics.median(slopes), slopes[low], slopes[high], count)


def _advice(schedule: ShapeSchedule) -> str:
    few = "Have fewer shapes: sort sizes into a few buckets and pad within each."
    if schedule.device == "cuda":
        return f"Cap the plans that a thread keeps: TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT, 10000 by default. {few}"
    if schedule.device == "cpu":
        return (
            "Cap the primitives that are kept: LRU_CACHE_CAPACITY and ONEDNN_PRIMITIVE_CACHE_CAPACITY, 1024 each by default. "
            + few
        )
    return few


def _ends(schedule: ShapeSchedule) -> Iterator[Evidence]:
    sizes = [step.rss_bytes for step in schedule.steps if step.rss_bytes is not None]
    yield Evidence(name="host memory after the first step", value=sizes[0], unit="bytes", where=schedule.config)
    yield Evidence(name="host memory after the last step", value=sizes[-1], unit="bytes", where=schedule.config)


RULE = Rule("host_memory_growth", DOC, check, "memory")
