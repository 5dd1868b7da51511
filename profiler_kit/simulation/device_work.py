"""The device work of the steps of a trace, with the host work that launched it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.totals import messages
from profiler_kit.simulation.graph import Ids, Ints, Mask
from profiler_kit.simulation.host_work import HostWork
from profiler_kit.traces.table import NONE


class DeviceWork(NamedTuple):
    """The device work of the steps in order of time.

    `position`: in `Attribution.device`. `launch`: the index of the host node, or NONE. `previous`: the index of the work
    before on the same stream, or NONE. `key`: the index of the last host node that the work or earlier work of
    its stream needs. `is_anchored`: it was launched before the first step, so it starts when it did.
    `waiting_ns`: how long a collective waits for other ranks.
    """

    position: Ids
    start_ns: Ints
    end_ns: Ints
    stream: Ids
    launch: Ids
    previous: Ids
    key: Ints
    step: Ids
    is_anchored: Mask
    waiting_ns: Ints


def device_work(attribution: Attribution, host: HostWork) -> DeviceWork:
    """Return the device work that the steps launched, and the work that was launched before and ran on in them."""
    device = attribution.device
    node_of = np.full(len(attribution.host.rows) + 1, NONE, np.int64)
    launches = np.flatnonzero(host.is_launch)
    node_of[host.event[launches]] = launches
    node = node_of[device.launch]
    start, end = device.start_ns - host.origin_ns, device.end_ns - host.origin_ns
    # Work that was launched before the first step, or whose launch is missing, occupies its stream. Work that was launched
    # after the last step does not belong to the graph.
    until = host.end_ns if len(host.end_ns) else end
    last = int(start[node != NONE].max(initial=until.max(initial=0)))
    earlier = (device.launch == NONE) & (start <= last)
    linked = np.flatnonzero(device.launch != NONE)
    earlier[linked] = attribution.host.start_ns[device.launch[linked]] < host.origin_ns
    position = np.flatnonzero((node != NONE) | (earlier & (end > 0))).astype(np.int32)
    node = node[position]
    streams = attribution.table.stream[device.rows[position]]
    stream = np.unique(streams, return_inverse=True)[1].reshape(-1).astype(np.int32)
    by_stream = np.argsort(stream, kind="stable")
    is_same = np.diff(stream[by_stream]) == 0
    previous = np.full(len(position), NONE, np.int64)
    previous[by_stream[1:][is_same]] = by_stream[:-1][is_same]
    key = np.maximum(node, 0)
    for number in np.unique(stream).tolist():
        members = np.flatnonzero(stream == number)
        key[members] = np.maximum.accumulate(key[members])
    step = np.append(host.step, np.int32(NONE))[np.where(node == NONE, len(host.step), node)]
    return DeviceWork(
        position=position,
        start_ns=start[position],
        end_ns=end[position],
        stream=stream,
        launch=node.astype(np.int32),
        previous=previous.astype(np.int32),
        key=key,
        step=step,
        is_anchored=(node == NONE) & (previous == NONE),
        waiting_ns=_waiting_ns(attribution, position),
    )


def _waiting_ns(attribution: Attribution, position: Ids) -> Ints:
    """Return how long each collective waits for other ranks: its time beyond the transfer of its message.

    The fastest collective of the trace shows the rate of transfer. A message of unknown size takes as long as the shortest one.
    """
    device = attribution.device
    waiting = np.zeros(len(position), np.int64)
    at = np.flatnonzero(device.collective[position])
    if not len(at):
        return waiting
    events = position[at]
    duration = device.end_ns[events] - device.start_ns[events]
    size = np.maximum(messages(attribution, device.rows[events], device.launch[events]).sizes, 0)
    has_size = size > 0
    ns_per_byte = float((duration[has_size] / size[has_size]).min(initial=np.inf))
    transfer = np.maximum(duration.min(), np.where(has_size, size * ns_per_byte, 0) if has_size.any() else 0)
    waiting[at] = np.maximum(duration - transfer.astype(np.int64), 0)
    return waiting
