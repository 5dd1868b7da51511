"""Waits that the profiler recorded together with their events, as it does with `enable_cuda_sync_events`."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.simulation.device_work import DeviceWork
from profiler_kit.simulation.graph import Ids, Ints
from profiler_kit.traces.table import NONE, Kind, Table

_RECORD: Final = "wait_on_cuda_event_record_corr_id"  # the call that recorded the event
_AWAITED: Final = "wait_on_stream"
_WAITING: Final = "stream"


class SyncEvents(NamedTuple):
    """Recorded waits: the position in `Attribution.host` of each waiting call, and the work that it waits for.

    `stream`: the waiting stream (as in `DeviceWork.stream`), NONE for a wait of the host.
    """

    call: Ids
    work: Ints
    stream: Ids


def sync_events(attribution: Attribution, work: DeviceWork) -> SyncEvents:
    """Return the recorded waits for an event whose call, stream and earlier work are in the trace."""
    table, host = attribution.table, attribution.host
    rows = np.flatnonzero(table.kind == Kind.SYNC).astype(np.int32)
    record = table.numbers_at(_RECORD, rows)
    rows, record = rows[record >= 0], record[record >= 0]
    calls = np.flatnonzero(table.kind[host.rows] == Kind.RUNTIME)
    call_of = dict(zip(table.correlation[host.rows[calls]].tolist(), calls.tolist(), strict=True))
    stream_of = _stream_numbers(table, attribution, work)
    launch = attribution.device.launch[work.position]
    launch_ns = np.where(launch == NONE, np.iinfo(np.int64).min, host.start_ns[launch] if len(host.start_ns) else 0)
    events = []
    for correlation, recorded, awaited, waiting in zip(
        table.correlation[rows].tolist(),
        record.tolist(),
        table.numbers_at(_AWAITED, rows).tolist(),
        table.numbers_at(_WAITING, rows).tolist(),
        strict=True,
    ):
        call, record_call = call_of.get(correlation, NONE), call_of.get(recorded, NONE)
        if call == NONE or record_call == NONE or awaited not in stream_of:
            continue
        on_stream = np.flatnonzero((work.stream == stream_of[awaited]) & (launch_ns < host.start_ns[record_call]))
        if len(on_stream):
            events.append((call, int(on_stream[-1]), stream_of.get(waiting, NONE)))
    columns = np.array(events, np.int64).reshape(len(events), 3).T
    return SyncEvents(columns[0].astype(np.int32), columns[1], columns[2].astype(np.int32))


def _stream_numbers(table: Table, attribution: Attribution, work: DeviceWork) -> dict[int, int]:
    """Return the number in `work` of each stream, by the number that CUDA gives it."""
    numbers, first = np.unique(work.stream, return_index=True)
    names = [table.streams[i].stream for i in table.stream[attribution.device.rows[work.position[first]]].tolist()]
    return {int(name): number for name, number in zip(names, numbers.tolist(), strict=True) if name.isdecimal()}
