"""Host memory that grows with every new input shape."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.phrases import (
    join_sentences,
    plural,
)
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.records.experiments import ShapeSchedule
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.units import text

# A cached plan takes about 200 KiB, and a shape needs three per convolution. Less may be the allocator's rounding.
MIN_GROWTH_BYTES: Final = 100 * 1024
# The first quarter of the shapes also loads kernels and libraries, which stay loaded.
SKIPPED_SHARE: Final = 0.25
# With fewer points, the confidence interval of the slope contains every slope between two of them.
MIN_POINTS: Final = 6
# Standard normal quantile of a two-sided 95 % interval.
Z_95: Final = 1.96
# The number of shapes for which the finding extrapolates the growth.
EXTRAPOLATED_SHAPES: Final = 10_000
MEDIUM_GROWTH_BYTES: Final = 2**30


@dataclass(frozen=True, slots=True)
class Slope:
    """A slope in bytes per point, its 95 % interval, and the number of points."""

    bytes: float
    low: float
    high: float
    points: int


def _host_memory_growth(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the schedule with the steepest slope."""
    slopes = [(schedule, slope) for schedule in report.schedules if (slope := _new_shape_slope(schedule)) is not None]
    if not slopes:
        return
    schedule, slope = max(slopes, key=lambda item: item[1].low)
    growth_bytes = slope.bytes * EXTRAPOLATED_SHAPES
    others = [f'In "{s.config}" it is {text(other.bytes, "bytes")}.' for s, other in slopes if s is not schedule]
    yield new_finding(
        severity="medium" if growth_bytes > MEDIUM_GROWTH_BYTES else "low",
        title=f"Host memory grows by {text(slope.bytes, 'bytes')} with each new input shape",
        explanation=join_sentences(
            f'In "{schedule.config}" the growth per shape is {text(slope.low, "bytes")} to {text(slope.high, "bytes")} over '
            f"{plural(slope.points, 'new shape')} (95 % interval); {EXTRAPOLATED_SHAPES:,} shapes would take "
            f"{text(growth_bytes, 'bytes')}.",
            "Caches keep an entry per shape, mostly plans of convolutions, and do not free it.",
            *others,
        ),
        advice=_growth_advice(schedule),
        evidence=(
            Evidence(name="host memory per new shape", value=slope.bytes, unit="bytes", where=schedule.config),
            Evidence(name="at least", value=slope.low, unit="bytes", where=schedule.config),
            Evidence(name="at most", value=slope.high, unit="bytes", where=schedule.config),
            Evidence(name="new shapes", value=slope.points, unit="count", where=schedule.config),
            *_first_and_last(schedule),
        ),
    )


def _new_shape_slope(schedule: ShapeSchedule) -> Slope | None:
    """The slope over new shapes; None if it is not significantly above the limit and above the slope over repeated shapes."""
    new = [step.rss_bytes for step in schedule.steps if not step.seen and step.rss_bytes is not None]
    repeated = [step.rss_bytes for step in schedule.steps if step.seen and step.rss_bytes is not None]
    slope = slope_of(new[math.ceil(SKIPPED_SHARE * len(new)) :])
    if slope is None or slope.low <= MIN_GROWTH_BYTES:
        return None
    repeated_slope = slope_of(repeated)
    return slope if repeated_slope is None or slope.low > max(0.0, repeated_slope.high) else None


def slope_of(values: Sequence[int]) -> Slope | None:
    """The slope of equally spaced `values` with its 95 % interval; None for fewer than `MIN_POINTS` values.

    Source: Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau", JASA 63 (1968), section 3.
    """
    count = len(values)
    if count < MIN_POINTS:
        return None
    slopes = sorted((values[j] - values[i]) / (j - i) for i in range(count) for j in range(i + 1, count))
    width = Z_95 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(0, math.floor((len(slopes) - width) / 2) - 1)
    high = min(len(slopes) - 1, math.ceil((len(slopes) + width) / 2))
    return Slope(statistics.median(slopes), slopes[low], slopes[high], count)


def _growth_advice(schedule: ShapeSchedule) -> str:
    fewer_shapes = "Reduce the number of shapes: sort sizes into a few buckets and pad within each bucket."
    if schedule.device == "cuda":
        return f"Limit the cached plans per thread: TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT (default 10000). {fewer_shapes}"
    if schedule.device == "cpu":
        return (
            "Limit the cached oneDNN primitives: LRU_CACHE_CAPACITY and ONEDNN_PRIMITIVE_CACHE_CAPACITY (default 1024 each). "
            + fewer_shapes
        )
    return fewer_shapes


def _first_and_last(schedule: ShapeSchedule) -> Iterator[Evidence]:
    sizes = [step.rss_bytes for step in schedule.steps if step.rss_bytes is not None]
    yield Evidence(name="host memory after the first step", value=sizes[0], unit="bytes", where=schedule.config)
    yield Evidence(name="host memory after the last step", value=sizes[-1], unit="bytes", where=schedule.config)


HOST_MEMORY_GROWTH = Rule(
    "host_memory_growth",
    f"""
Fires on a run over changing shapes (`--shapes`) when host memory grows by significantly more than
{text(MIN_GROWTH_BYTES, "bytes")} with each new shape: the lower end of the slope's 95 % interval must be above this limit,
and above the upper end of the slope over steps with repeated shapes. Memory that also grows with repeated shapes has another
cause than a cache of shapes.

- `medium`: {EXTRAPOLATED_SHAPES:,} shapes would take more than {text(MEDIUM_GROWTH_BYTES, "bytes")}.
- `low`: otherwise.

The slope is the median of the slopes between all pairs of points, and its interval comes from their order (Sen, Journal of
the American Statistical Association 63, 1968), so a single library that is loaded during the run does not change it. The
points are host memory after the first step of each shape. The first quarter of the shapes is ignored, because it loads
kernels.
""",
    _host_memory_growth,
    "memory",
)
