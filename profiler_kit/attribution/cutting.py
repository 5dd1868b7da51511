"""Selection of a trace's entries, so that a viewer can open it: some of its steps, or up to a size limit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.errors import UsageError
from profiler_kit.records.lanes import Annotation, CounterTrack
from profiler_kit.traces.entries import (
    FLOW_END,
    FLOW_START,
    METADATA,
    UNREAD,
    Entries,
    within_boxes,
    without_unmatched_flows,
)
from profiler_kit.traces.table import DEVICE_KINDS, HOST_KINDS, NONE, Kind, Mask
from profiler_kit.units import plural

_NS_PER_US: Final = 1000.0


class Period(NamedTuple):
    """Consecutive steps: the time of their marks on the host, and the time of the device work launched in them.

    The device may be steps behind the host, so the two intervals need not overlap.
    """

    host_start_ns: int
    host_end_ns: int
    device_start_ns: int
    device_end_ns: int

    @property
    def start_ns(self) -> int:
        """The earlier start."""
        return min(self.host_start_ns, self.device_start_ns)

    @property
    def end_ns(self) -> int:
        """The later end."""
        return max(self.host_end_ns, self.device_end_ns)


class StepPeriod(NamedTuple):
    """A step and its period. Without device work, the device interval equals the mark."""

    number: int
    period: Period


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cut:
    """The selected entries of a trace.

    `keep`: per entry. `period`: None is the whole trace. `size`: in bytes. `notes`: on the removed entries.
    """

    keep: Mask
    period: Period | None
    size: int
    notes: tuple[str, ...] = ()


def step_periods(attribution: Attribution) -> tuple[StepPeriod, ...]:
    """Return the steps of the trace with their periods, in order."""
    table, device = attribution.table, attribution.device
    in_step = device.step != NONE
    step, rows = device.step[in_step], device.rows[in_step]
    begin = np.full(len(attribution.steps), np.iinfo(np.int64).max)
    end = np.full(len(attribution.steps), np.iinfo(np.int64).min)
    np.minimum.at(begin, step, table.start_ns[rows])
    np.maximum.at(end, step, table.end_ns[rows])
    return tuple(
        StepPeriod(mark.number, Period(*mark[1:], *((first, last) if first <= last else mark[1:])))
        for mark, first, last in zip(attribution.steps, begin.tolist(), end.tolist(), strict=True)
    )


def cut(
    entries: Entries,
    steps: Sequence[StepPeriod],
    *,
    step_range: tuple[int, int] | None = None,
    steady: Sequence[int] = (),
    limit_bytes: int | None = None,
    annotation_bytes: Callable[[Period | None], int] = lambda period: 0,
) -> Cut:
    """Return the entries of the trace to keep.

    `step_range`: the numbers of the first and the last step. `limit_bytes`: the size limit of the JSON before
    compression, including `annotation_bytes(period)`, the bytes added for a period. With a limit, as many whole steps as fit
    are kept, `steady` ones (by number) first. If not even one step fits, its shortest Python calls and then its
    shortest operators are removed. Flow arrows are kept only with both ends, with a limit or without.

    Raises: UsageError if the trace has none of the requested steps, or nothing fits.
    """
    period: Period | None = None
    notes: list[str] = []
    if step_range is not None:
        check_step_range([step.number for step in steps], step_range)
        selected = [step for step in steps if step_range[0] <= step.number <= step_range[1]]
        period = _period(selected)
        notes.append(f"Cut to {_steps_text(selected)}.")
        steps = tuple(selected)
    selection = _select(entries, period, notes)
    if limit_bytes is None or selection.size + annotation_bytes(period) <= limit_bytes:
        return selection

    def fits(run: Sequence[StepPeriod]) -> bool:
        period = _period(run)
        return _select(entries, period, ()).size + annotation_bytes(period) <= limit_bytes

    if len(steps) > 1:
        run = _most_steps(steps, frozenset(steady), fits)
        period = _period(run)
        notes = [f"Cut to {_steps_text(run)}, {len(run)} of {len(steps)}, to stay below {_megabytes(limit_bytes)}."]
        selection = _select(entries, period, notes)
    budget_bytes = limit_bytes - annotation_bytes(period)
    return (
        selection
        if selection.size <= budget_bytes
        else _drop_short_calls(entries, selection, budget_bytes, limit_bytes)
    )


def _select(entries: Entries, period: Period | None, notes: Sequence[str]) -> Cut:
    """Select all entries of `period`: entries that overlap it, launches of the device work that does, and metadata."""
    keep = np.ones(len(entries), dtype=np.bool_) if period is None else _overlapping(entries, period)
    if period is not None:
        _add_launches(entries, keep)
    before = int((keep & _is_flow(entries)).sum())
    keep = without_unmatched_flows(entries, keep)
    unmatched = before - int((keep & _is_flow(entries)).sum())
    left_out = (f"Removed {plural(unmatched, 'end')} of flow arrows without the other end.",) if unmatched else ()
    return Cut(keep=keep, period=period, size=_size(entries, keep), notes=(*notes, *left_out))


def _overlapping(entries: Entries, period: Period) -> Mask:
    """Return host events of the steps, device work of the steps, other entries in the time of both, and all metadata."""
    on_device = np.isin(entries.kind, [int(kind) for kind in (*DEVICE_KINDS, Kind.SYNC, Kind.MIRROR)])
    on_host = np.isin(entries.kind, [int(kind) for kind in HOST_KINDS]) | _is_flow(entries)
    start = np.full(len(entries), period.start_ns / _NS_PER_US)
    end = np.full(len(entries), period.end_ns / _NS_PER_US)
    start[on_host], end[on_host] = period.host_start_ns / _NS_PER_US, period.host_end_ns / _NS_PER_US
    start[on_device], end[on_device] = period.device_start_ns / _NS_PER_US, period.device_end_ns / _NS_PER_US
    keep = (entries.start_us <= end) & (entries.end_us >= start)
    keep |= ~np.isfinite(entries.start_us) | ~np.isfinite(entries.end_us)
    keep |= (entries.kind == METADATA) | (entries.kind == UNREAD)
    return keep


def _add_launches(entries: Entries, keep: Mask) -> None:
    """Add the launches of the device work in `keep`, and the flow arrows between them."""
    work = keep & np.isin(entries.kind, [int(kind) for kind in DEVICE_KINDS])
    correlations = np.unique(entries.correlation[work & (entries.correlation != NONE)])
    keep |= (entries.kind == Kind.RUNTIME) & np.isin(entries.correlation, correlations)
    flows = np.flatnonzero(_is_flow(entries))
    arriving = flows[within_boxes(entries, work, flows)]
    keep[flows] |= np.isin(entries.flow[flows], np.unique(entries.flow[arriving]))


def _is_flow(entries: Entries) -> Mask:
    return (entries.kind >= FLOW_START) & (entries.kind <= FLOW_END)


def _size(entries: Entries, keep: Mask) -> int:
    return int(entries.size[keep].sum(dtype=np.int64)) + entries.outside


def _period(steps: Sequence[StepPeriod]) -> Period:
    host_start, host_end, device_start, device_end = zip(*(step.period for step in steps), strict=True)
    return Period(min(host_start), max(host_end), min(device_start), max(device_end))


def _most_steps(
    steps: Sequence[StepPeriod], steady: frozenset[int], fits: Callable[[Sequence[StepPeriod]], bool]
) -> Sequence[StepPeriod]:
    """Return the longest run of steps that fits, from the first steady one on, then extended backwards.

    At least one step.
    """
    first = next((i for i, step in enumerate(steps) if step.number in steady), 0)
    stop = first + 1 + _largest_fitting(len(steps) - first - 1, lambda n: fits(steps[first : first + 1 + n]))
    before = 0
    if stop == len(steps) and first and fits(steps[first:]):
        before = _largest_fitting(first, lambda n: fits(steps[first - n :]))
    return steps[first - before : stop]


def _largest_fitting(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `limit` that `fits`; 0 always fits."""
    low = 0
    while low < limit:
        middle = (low + limit + 1) // 2
        if fits(middle):
            low = middle
        else:
            limit = middle - 1
    return low


def _drop_short_calls(entries: Entries, selection: Cut, budget_bytes: int, limit_bytes: int) -> Cut:
    """Return `selection` without its shortest Python calls, then its shortest operators, until `budget_bytes` suffice."""
    keep, notes = selection.keep, list(selection.notes)
    size = selection.size
    for kind, called in ((Kind.PYTHON, "Python calls"), (Kind.OPERATOR, "operators")):
        calls = np.flatnonzero(keep & entries.sliced & (entries.kind == kind))
        duration = (entries.end_us - entries.start_us)[calls]
        calls = calls[np.argsort(duration, kind="stable")]
        freed = np.cumsum(entries.size[calls], dtype=np.int64)
        dropped = min(int(np.searchsorted(freed, size - budget_bytes)) + 1, len(calls))
        if not dropped:
            continue
        keep = keep.copy()
        keep[calls[:dropped]] = False
        keep = without_unmatched_flows(entries, keep)
        size = _size(entries, keep)
        removed = (
            f"all {dropped:,} {called}"
            if dropped == len(calls)
            else f"the {dropped:,} shortest of {len(calls):,} {called}"
        )
        notes.append(f"Removed {removed}, to stay below {_megabytes(limit_bytes)}.")
        if size <= budget_bytes:
            return Cut(keep=keep, period=selection.period, size=size, notes=tuple(notes))
    needed = _megabytes(size + limit_bytes - budget_bytes)
    raise UsageError(
        f"the limit of {_megabytes(limit_bytes)} is too small: the trace needs {needed} without Python calls and operators",
        hint="raise --max-mb, or select fewer steps with --steps",
    )


def check_step_range(steps: Sequence[int], step_range: tuple[int, int], *, where: str | None = None) -> None:
    """Raise UsageError if none of the `steps` of a trace lies in `step_range`."""
    if any(step_range[0] <= number <= step_range[1] for number in steps):
        return
    request = (
        f"step {step_range[0]}" if step_range[0] == step_range[1] else f"step from {step_range[0]} to {step_range[1]}"
    )
    steps_there = _numbers_text(steps) if steps else "no marked steps"
    raise UsageError(
        f"no {request}: the trace has {steps_there}", where=where, hint="select marked steps with --steps FIRST:LAST"
    )


def _steps_text(steps: Sequence[StepPeriod]) -> str:
    return _numbers_text([step.number for step in steps])


def _numbers_text(steps: Sequence[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {min(steps)} to {max(steps)}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g} MB"


def clip_annotation(annotation: Annotation, period: Period | None) -> Annotation:
    """Return `annotation` limited to `period`. Spans and counters are clipped at its borders."""
    if period is None:
        return annotation
    start, end = period.start_ns, period.end_ns
    return replace(
        annotation,
        spans=tuple(
            replace(span, start_ns=max(span.start_ns, start), end_ns=min(span.end_ns, end))
            for span in annotation.spans
            if span.start_ns < end and span.end_ns > start
        ),
        counters=tuple(_counter(counter, start, end) for counter in annotation.counters),
    )


def _counter(counter: CounterTrack, start: int, end: int) -> CounterTrack:
    """Return the points inside, preceded by the value at the start."""
    points = counter.points
    first = bisect_right(points, start, key=itemgetter(0))
    last = bisect_left(points, end, key=itemgetter(0))
    before = ((start, points[first - 1][1]),) if first else ()
    return CounterTrack(name=counter.name, points=(*before, *points[first:last]))
