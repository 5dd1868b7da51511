"""The device work that the host and the streams waited for. Traces seldom record it: it follows from order and time."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import HANDOVER_NS
from profiler_kit.attribution.result import Attribution
from profiler_kit.simulation.device_work import DeviceWork
from profiler_kit.simulation.graph import Ids, Ints
from profiler_kit.simulation.host_work import HostWork
from profiler_kit.simulation.sync_events import SyncEvents, sync_events
from profiler_kit.traces.table import NONE, Kind

# A wait returns after the awaited work has ended. The clocks of host and device differ by a few us.
_SKEW_NS: Final = 10_000
_WAITS_FOR_ALL: Final = re.compile(r"DeviceSynchronize\Z|CtxSynchronize\Z|(cuda|hip|cuMem)Free")
_WAITS_FOR_EVENT: Final = re.compile(r"Event(Host)?(Synchronize|Wait)")
_STREAM_WAIT: Final = re.compile(r"StreamWaitEvent")
_RECORD: Final = re.compile(r"EventRecord")
_MAX_LAUNCHES: Final = 1_000  # before an event, to search for work on another stream


class Awaited(NamedTuple):
    """Pairs of a wait (the index of host work) and the work that it waits for (an index of device work)."""

    node: Ints
    work: Ints


class _StreamOrder(NamedTuple):
    """The work of one stream in order: indices, the host work that must come first, and the latest end so far."""

    work: Ints
    key: Ints
    end_ns: Ints


def awaited_by_host(attribution: Attribution, host: HostWork, work: DeviceWork) -> Awaited:
    """Return the work that each wait of the host waits for.

    A wait for the device waits for the last work of each stream that was launched before. Any other wait returns when one work
    has ended: the last one launched before, or, if that ended later than the wait, the one that ended last before the wait did.
    """
    waits = np.flatnonzero(host.is_wait)
    if not len(waits) or not len(work.position):
        return Awaited(np.zeros(0, np.int64), np.zeros(0, np.int64))
    table, rows = attribution.table, attribution.host.rows[host.event[waits]]
    for_all, for_event = table.named(rows, _WAITS_FOR_ALL), table.named(rows, _WAITS_FOR_EVENT)
    streams = _streams(work)
    # by stream: the last work launched before each wait, and the last that had also ended by the end of the wait
    launched = np.stack([_last(stream, stream.key, waits) for stream in streams])
    limit = host.end_ns[waits] + _SKEW_NS
    ended = np.stack([_last(stream, stream.end_ns, limit + 1) for stream in streams])
    ended = np.minimum(ended, launched)
    latest = _latest(ended, work.end_ns)
    recent = _latest(launched, work.key)
    has_ended = (recent != NONE) & (work.end_ns[recent] <= limit)
    single = np.where(has_ended & ~for_event, recent, latest)
    recorded, stated = sync_events(attribution, work), np.full(len(attribution.host.rows), NONE, np.int64)
    stated[recorded.call] = recorded.work
    stated = stated[host.event[waits]]
    single = np.where(stated != NONE, stated, single)
    pairs = [(waits[~for_all], single[~for_all])]
    pairs += [(waits[for_all], stream[for_all]) for stream in launched]
    node, awaited = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return Awaited(node[awaited != NONE], awaited[awaited != NONE])


def _streams(work: DeviceWork) -> list[_StreamOrder]:
    orders = []
    for number in np.unique(work.stream).tolist():
        members = np.flatnonzero(work.stream == number)
        orders.append(_StreamOrder(members, work.key[members], np.maximum.accumulate(work.end_ns[members])))
    return orders


def _last(stream: _StreamOrder, values: Ints, limits: Ints) -> Ints:
    """Return the last work of `stream` whose value is below each limit, or NONE. `values` ascend."""
    at = np.searchsorted(values, limits, side="left") - 1
    return np.where(at >= 0, stream.work[at], NONE)


def _latest(candidates: Ints, values: Ints) -> Ints:
    """Return, of the candidates in each column, the one with the greatest value; NONE if all are."""
    value = np.where(candidates == NONE, np.iinfo(np.int64).min, values[candidates])
    result: Ints = candidates[np.argmax(value, axis=0), np.arange(candidates.shape[1])]
    return result


# Work that starts later than HANDOVER_NS after its launch and its stream waits for something else. An event reaches another
# stream within a longer time: a collective, whose kernel needs many blocks at once, begins 25 us after it on an H200.
_EVENT_NS: Final = 50_000


def awaited_by_streams(attribution: Attribution, host: HostWork, work: DeviceWork) -> Ids:
    """Return the work on another stream that each work waits for through an event, or NONE.

    The thread that launches the work made its stream wait since the launch before: then the event is that of the last work
    that was launched on another stream before the last event was recorded. That work may still run when the waiting work
    begins. Then the event, and also that of work which starts late for no other reason, is that of the work that
    ended last before it began.
    """
    recorded = sync_events(attribution, work)
    result = _stated(attribution, work, recorded) if len(recorded.call) else _launched_before_event(attribution, work)
    ended = _ended_before(work)
    ready = np.full(len(work.position), np.iinfo(np.int64).min)
    for source, end_ns in ((work.launch, host.end_ns), (work.previous, work.end_ns)):
        at = source != NONE
        ready[at] = np.maximum(ready[at], end_ns[source[at]])
    is_late = work.start_ns - ready > HANDOVER_NS
    is_late &= (ended != NONE) & (work.start_ns - work.end_ns[ended] < _EVENT_NS)
    runs_on = (result != NONE) & (work.end_ns[result] > work.start_ns + _SKEW_NS)
    return np.where(runs_on | (is_late & (result == NONE)), ended, result).astype(np.int32)


def _stated(attribution: Attribution, work: DeviceWork, recorded: SyncEvents) -> Ids:
    """Return the work that the first work of a stream after each recorded wait of that stream waits for; NONE for other work."""
    result = np.full(len(work.position), NONE, np.int32)
    launch = attribution.device.launch[work.position]
    launch_ns = np.where(launch == NONE, np.iinfo(np.int64).min, attribution.host.start_ns[launch])
    for call, awaited, stream in zip(*(column.tolist() for column in recorded), strict=True):
        following = np.flatnonzero((work.stream == stream) & (launch_ns > attribution.host.start_ns[call]))
        result[following[:1]] = awaited
    return result


def _ended_before(work: DeviceWork) -> Ids:
    """Return the work on another stream that ended last before each work began, of that launched before it, or NONE."""
    candidates = []
    number = np.empty(len(work.key), np.int64)
    number[np.argsort(work.key, kind="stable")] = np.arange(len(number))  # that of the graph's nodes
    for stream in _streams(work):
        launched = _last(stream, number[stream.work], number)
        ended = np.minimum(launched, _last(stream, stream.end_ns, work.start_ns + _SKEW_NS + 1))
        candidates.append(np.where(work.stream == work.stream[stream.work[0]], NONE, ended))
    return _latest(np.stack(candidates), work.end_ns).astype(np.int32) if candidates else work.launch


def _launched_before_event(attribution: Attribution, work: DeviceWork) -> Ids:
    """Return, for work whose stream was made to wait, the work before the last recorded event; else NONE."""
    table, host, device = attribution.table, attribution.host, attribution.device
    result = np.full(len(work.position), NONE, np.int32)
    calls = np.flatnonzero(table.kind[host.rows] == Kind.RUNTIME)
    waits = calls[table.named(host.rows[calls], _STREAM_WAIT)]
    if not len(waits):
        return result
    records = calls[table.named(host.rows[calls], _RECORD)]
    launch = device.launch[work.position]
    linked = np.flatnonzero(launch != NONE)
    launch_ns = np.full(len(launch) + 1, np.iinfo(np.int64).min)  # the last entry: no work before
    launch_ns[linked] = host.start_ns[launch[linked]]
    in_order = linked[np.argsort(launch_ns[linked], kind="stable")]
    for thread in np.unique(host.thread[waits]).tolist():
        wait_ns, record_ns = (np.sort(host.start_ns[at[host.thread[at] == thread]]) for at in (waits, records))
        launched = linked[host.thread[launch[linked]] == thread]
        last = np.searchsorted(wait_ns, launch_ns[launched]) - 1
        waiting = (last >= 0) & (wait_ns[last] > launch_ns[work.previous[launched]])
        event_ns = wait_ns[last[waiting]]
        record = np.searchsorted(record_ns, event_ns) - 1
        event_ns = np.where(record >= 0, np.append(record_ns, 0)[record], event_ns)
        until = np.searchsorted(launch_ns[in_order], event_ns)
        for index, end in zip(launched[waiting].tolist(), until.tolist(), strict=True):
            earlier = in_order[max(0, end - _MAX_LAUNCHES) : end]
            others = earlier[work.stream[earlier] != work.stream[index]]
            result[index] = others[-1] if len(others) else NONE
    return result
