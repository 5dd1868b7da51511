"""The account of each device of a trace, and of the recorded time around the device work.

All devices share one span, from the first device event of the trace to the last. Each of them is busy or idle in all of it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.busy_time import event_devices
from profiler_kit.attribution.device_time import (
    CAUSE_NUMBERS,
    DeviceTime,
    Gaps,
    Timeline,
    device_timeline,
    gaps_by_cause,
    gaps_within,
)
from profiler_kit.attribution.result import Attribution
from profiler_kit.records.traces import TraceDevice
from profiler_kit.traces.intervals import Intervals, join, overlap, sum_by, union
from profiler_kit.traces.table import NONE, Ids, Ints, Kind

# A device with less work than this part of the busiest device's does not take part: it holds a copy, or a second context.
_MIN_WORK_SHARE: Final = 0.01


class DeviceAccounts(NamedTuple):
    """The sums over all devices: busy plus idle time is the span, once for each device.

    `event_busy_ns`: the busy ns counted for each device event. `gaps`: of all devices, in order for each of them.
    """

    devices: tuple[TraceDevice, ...]
    event_busy_ns: Ints
    span_ns: int
    gaps: Gaps


def device_accounts(attribution: Attribution, time: DeviceTime) -> DeviceAccounts:
    """Return the account of each device that takes part in the work of `attribution`."""
    timeline = time.timeline
    device_of, names = used_devices(attribution)
    count = len(names)
    if count == 1:
        return DeviceAccounts(
            (_account(names[0], timeline, timeline.span_ns),), timeline.event_busy_ns, timeline.span_ns, time.gaps
        )
    timelines = [device_timeline(attribution.device.selected(device_of == number)) for number in range(count)]
    busy_ns = np.zeros(len(device_of), np.int64)
    for number, of_device in enumerate(timelines):
        busy_ns[device_of == number] = of_device.event_busy_ns
    busy = [union(of_device.device.start_ns, of_device.device.end_ns, ordered=True) for of_device in timelines]
    gaps = [_gaps_of_device(attribution, time, device_of, number, busy) for number in range(count)]
    return DeviceAccounts(
        tuple(_account(name, part, timeline.span_ns) for name, part in zip(names, timelines, strict=True)),
        busy_ns,
        count * timeline.span_ns,
        Gaps(
            start=np.concatenate([part.start for part in gaps]),
            end=np.concatenate([part.end for part in gaps]),
            ended_by=np.concatenate([part.ended_by for part in gaps]),
            ns=np.concatenate([part.ns for part in gaps], axis=1),
        ),
    )


def _account(name: str, timeline: Timeline, span_ns: int) -> TraceDevice:
    busy_ns = timeline.busy_ns
    return TraceDevice(device=name, events=len(timeline.event_busy_ns), busy_ns=busy_ns, idle_ns=span_ns - busy_ns)


def used_devices(attribution: Attribution) -> tuple[Ids, tuple[str, ...]]:
    """Return the device of each event, as an index into the returned names.

    A device with hardly any work counts as the busiest one, so that all work has a device that takes part.
    """
    device_of, names = event_devices(attribution)
    device = attribution.device
    work_ns = sum_by(device_of, device.end_ns - device.start_ns, max(len(names), 1))
    events = np.bincount(device_of, minlength=len(work_ns))
    used = np.flatnonzero((events > 0) & (work_ns >= _MIN_WORK_SHARE * work_ns.max()))
    index = np.full(len(work_ns), int(np.searchsorted(used, work_ns.argmax())), np.int32)
    index[used] = np.arange(len(used))
    return index[device_of], tuple(names[i] if names else "" for i in used.tolist())


def _gaps_of_device(
    attribution: Attribution, time: DeviceTime, device_of: Ids, number: int, busy: list[Intervals]
) -> Gaps:
    """Return the gaps of one of several devices in the span of all. `busy`: the busy time of each device.

    A device whose work was launched, and which is idle for an unknown reason while another device works, waits for it.
    """
    device = attribution.device
    windows = time.timeline.windows or union(device.start_ns[:1], device.end_ns.max(keepdims=True))
    gaps = gaps_within(attribution, windows, np.flatnonzero(device_of == number).astype(np.int32), time.waits)
    others = _joined([part for i, part in enumerate(busy) if i != number])
    waiting_ns = np.minimum(gaps.ns[CAUSE_NUMBERS["unknown"]], overlap(others, gaps.start, gaps.end))
    gaps.ns[CAUSE_NUMBERS["unknown"]] -= waiting_ns
    gaps.ns[CAUSE_NUMBERS["another stream"]] += waiting_ns
    return gaps


def _joined(parts: list[Intervals]) -> Intervals:
    result = parts[0]
    for part in parts[1:]:
        result = join(result, part)
    return result


# ---- the recorded time around the device work


def time_around(attribution: Attribution, time: DeviceTime) -> tuple[Gaps, Gaps]:
    """Return the recorded time before the first device work and after the last, each as one gap, or none.

    Recorded time begins with the first operator, range, or call of the runtime, and ends with the last. Calls of Python do not
    count: the profiler's own are among them.
    """
    host, device = attribution.host, attribution.device
    counted = attribution.table.kind[host.rows] != Kind.PYTHON
    first, last = int(device.start_ns[0]), int(device.end_ns.max())
    start = min(first, int(host.start_ns[counted].min(initial=first)))
    end = max(last, int(host.end_ns[counted].max(initial=last)))

    def gap(begin_ns: int, end_ns: int, ending: int, previous: int) -> Gaps:
        columns = [np.array([value], np.int64)[: int(end_ns > begin_ns)] for value in (begin_ns, end_ns, previous)]
        ended_by = np.array([ending], np.int32)[: len(columns[0])]
        return gaps_by_cause(attribution, time.waits, columns[0], columns[1], ended_by, columns[2])

    return gap(start, first, 0, 0), gap(last, end, NONE, len(device.start_ns) - 1)
