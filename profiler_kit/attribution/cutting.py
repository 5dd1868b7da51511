"""Which entries of a trace to keep, so that a viewer can open it: some of its steps, or as much as a size allows."""

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
from profiler_kit.traces.entries import FLOW_END, FLOW_START, METADATA, UNREAD, Entries
from profiler_kit.traces.flows import within_boxes, without_unmatched_flows
from profiler_kit.traces.table import DEVICE_KINDS, HOST_KINDS, NONE, Kind, Mask

_NS_PER_US: Final = 1000.0


class Period(NamedTuple):
    """Steps in a row: from the first mark's start to the last one's end, and the time of the device's work launched in them.

    The device may be steps behind the host, so that the two need not even touch.
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
    """A marked step and its period; without work on the device, that part is its own mark's."""

    number: int
    period: Period


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cut:
    """What is kept: `keep` per entry, `period` (None: all of it), `size` in bytes, and `notes` on what is left out and why."""

    keep: Mask
    period: Period | None
    size: int
    notes: tuple[str, ...] = ()


def step_periods(attribution: Attribution) -> tuple[StepPeriod, ...]:
    """The marked steps of the trace, in its order."""
    table, device = attribution.table, attribution.device
    mine = device.step != NONE
    step, rows = device.step[mine], device.rows[mine]
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
    wanted: tuple[int, int] | None = None,
    steady: Sequence[int] = (),
    limit_bytes: int | None = None,
    beside: Callable[[Period | None], int] = lambda period: 0,
) -> Cut:
    """What of the trace to keep.

    `wanted`: the first and the last step's number, by the marks. `limit_bytes`: of JSON, unzipped, with what `beside` says is
    added for a period. As many whole steps as fit are kept then, `steady` ones (their numbers) before others; where not even
    one fits, it loses its Python calls and then its operators, the shortest first. What is kept of arrows has both ends,
    with a limit or without.

    Raises: UsageError where the trace has no step of those wanted, or nothing fits.
    """
    period: Period | None = None
    notes: list[str] = []
    if wanted is not None:
        check_wanted([step.number for step in steps], wanted)
        chosen = [step for step in steps if wanted[0] <= step.number <= wanted[1]]
        period = _period(chosen)
        notes.append(f"cut to {_named(chosen)}")
        steps = tuple(chosen)
    whole = _kept(entries, period, notes)
    if limit_bytes is None or whole.size + beside(period) <= limit_bytes:
        return whole

    def fits(run: Sequence[StepPeriod]) -> bool:
        period = _period(run)
        return _kept(entries, period, ()).size + beside(period) <= limit_bytes

    if len(steps) > 1:
        run = _most_steps(steps, frozenset(steady), fits)
        period = _period(run)
        notes = [f"cut to {_named(run)}, {len(run)} of {len(steps)}, to stay below {_megabytes(limit_bytes)}"]
        whole = _kept(entries, period, notes)
    left = limit_bytes - beside(period)
    return whole if whole.size <= left else _thinned(entries, whole, left, limit_bytes)


def _kept(entries: Entries, period: Period | None, notes: Sequence[str]) -> Cut:
    """All entries of `period`: what overlaps it, launches of the device work that does, and names."""
    keep = np.ones(len(entries), dtype=np.bool_) if period is None else _overlapping(entries, period)
    if period is not None:
        _add_launches(entries, keep)
    before = int((keep & _flows(entries)).sum())
    keep = without_unmatched_flows(entries, keep)
    unmatched = before - int((keep & _flows(entries)).sum())
    left_out = (f"{unmatched:,} ends of arrows left out whose other end is not there",) if unmatched else ()
    return Cut(keep=keep, period=period, size=_size(entries, keep), notes=(*notes, *left_out))


def _overlapping(entries: Entries, period: Period) -> Mask:
    """What the host did in the steps, what the device did for them, and all else in the time of both; names in any case."""
    on_device = np.isin(entries.kind, [int(kind) for kind in (*DEVICE_KINDS, Kind.SYNC, Kind.MIRROR)])
    on_host = np.isin(entries.kind, [int(kind) for kind in HOST_KINDS]) | _flows(entries)
    start = np.full(len(entries), period.start_ns / _NS_PER_US)
    end = np.full(len(entries), period.end_ns / _NS_PER_US)
    start[on_host], end[on_host] = period.host_start_ns / _NS_PER_US, period.host_end_ns / _NS_PER_US
    start[on_device], end[on_device] = period.device_start_ns / _NS_PER_US, period.device_end_ns / _NS_PER_US
    keep = (entries.start_us <= end) & (entries.end_us >= start)
    keep |= ~np.isfinite(entries.start_us) | ~np.isfinite(entries.end_us)
    keep |= (entries.kind == METADATA) | (entries.kind == UNREAD)
    return keep


def _add_launches(entries: Entries, keep: Mask) -> None:
    """Keeps the launches of the device work in `keep` too, and the arrows from one to the other."""
    work = keep & np.isin(entries.kind, [int(kind) for kind in DEVICE_KINDS])
    correlations = np.unique(entries.correlation[work & (entries.correlation != NONE)])
    keep |= (entries.kind == Kind.RUNTIME) & np.isin(entries.correlation, correlations)
    flows = np.flatnonzero(_flows(entries))
    arriving = flows[within_boxes(entries, work, flows)]
    keep[flows] |= np.isin(entries.flow[flows], np.unique(entries.flow[arriving]))


def _flows(entries: Entries) -> Mask:
    return (entries.kind >= FLOW_START) & (entries.kind <= FLOW_END)


def _size(entries: Entries, keep: Mask) -> int:
    return int(entries.size[keep].sum(dtype=np.int64)) + entries.outside


def _period(steps: Sequence[StepPeriod]) -> Period:
    host_start, host_end, device_start, device_end = zip(*(step.period for step in steps), strict=True)
    return Period(min(host_start), max(host_end), min(device_start), max(device_end))


def _most_steps(
    steps: Sequence[StepPeriod], steady: frozenset[int], fits: Callable[[Sequence[StepPeriod]], bool]
) -> Sequence[StepPeriod]:
    """The longest run of steps that fits, from the first steady one on; then those before it. At least one step."""
    first = next((i for i, step in enumerate(steps) if step.number in steady), 0)
    stop = first + 1 + _longest(len(steps) - first - 1, lambda n: fits(steps[first : first + 1 + n]))
    before = 0
    if stop == len(steps) and first and fits(steps[first:]):
        before = _longest(first, lambda n: fits(steps[first - n :]))
    return steps[first - before : stop]


def _longest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that `fits`; 0 is taken to."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        if fits(middle):
            low = middle
        else:
            most = middle - 1
    return low


def _thinned(entries: Entries, whole_cut: Cut, left: int, limit_bytes: int) -> Cut:
    """`found`, of which `left` bytes fit, without its shortest Python calls, then without its shortest operators."""
    keep, notes = whole_cut.keep, list(whole_cut.notes)
    size = whole_cut.size
    for kind, called in ((Kind.PYTHON, "Python calls"), (Kind.OPERATOR, "operators")):
        calls = np.flatnonzero(keep & entries.sliced & (entries.kind == kind))
        duration = (entries.end_us - entries.start_us)[calls]
        calls = calls[np.argsort(duration, kind="stable")]
        freed = np.cumsum(entries.size[calls], dtype=np.int64)
        dropped = min(int(np.searchsorted(freed, size - left)) + 1, len(calls))
        if not dropped:
            continue
        keep = keep.copy()
        keep[calls[:dropped]] = False
        keep = without_unmatched_flows(entries, keep)
        size = _size(entries, keep)
        which = (
            f"all {dropped:,} {called}"
            if dropped == len(calls)
            else f"the {dropped:,} shortest of {len(calls):,} {called}"
        )
        notes.append(f"{which} left out, to stay below {_megabytes(limit_bytes)}")
        if size <= left:
            return Cut(keep=keep, period=whole_cut.period, size=size, notes=tuple(notes))
    needed = _megabytes(size + limit_bytes - left)
    raise UsageError(
        f"{_megabytes(limit_bytes)} are too few: without Python calls and operators it takes {needed}",
        hint="give more with --max-mb, or fewer steps with --steps",
    )


def check_wanted(steps: Sequence[int], wanted: tuple[int, int], *, where: str | None = None) -> None:
    """Raises UsageError where none of the `steps` of a trace is from the first to the last `wanted`."""
    if any(wanted[0] <= number <= wanted[1] for number in steps):
        return
    request = f"step {wanted[0]}" if wanted[0] == wanted[1] else f"step from {wanted[0]} to {wanted[1]}"
    steps_there = _numbers(steps) if steps else "no marked steps"
    raise UsageError(
        f"no {request}: the trace has {steps_there}", where=where, hint="give --steps FIRST:LAST of the marked steps"
    )


def _named(steps: Sequence[StepPeriod]) -> str:
    return _numbers([step.number for step in steps])


def _numbers(steps: Sequence[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {min(steps)} to {max(steps)}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g} MB"


def clipped(annotation: Annotation, period: Period | None) -> Annotation:
    """`annotation` with what lies in `period`; stretches that reach beyond it end with it, and so do counters."""
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
    """The points within, begun by the value that holds at the start."""
    points = counter.points
    first = bisect_right(points, start, key=itemgetter(0))
    last = bisect_left(points, end, key=itemgetter(0))
    before = ((start, points[first - 1][1]),) if first else ()
    return CounterTrack(name=counter.name, points=(*before, *points[first:last]))
