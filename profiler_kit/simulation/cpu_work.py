"""Work on the CPU in the middle of a step: operators that compute there, and the copies from the device and back to it."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler_kit.attribution.events import outermost_enclosing
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution
from profiler_kit.records.families import is_host_copy
from profiler_kit.simulation.from_trace import TraceGraph
from profiler_kit.simulation.graph import Ids, Mask
from profiler_kit.simulation.host_pieces import HostPieces
from profiler_kit.traces.table import NONE, Kind

# The dispatch of an operator takes microseconds. One that calls no driver and takes longer computes on the CPU.
_COMPUTES_NS: Final = 50_000
_TRANSFER: Final = PHASE_NUMBERS["transfer"]  # a batch is copied anyway


def cpu_work(attribution: Attribution, trace: TraceGraph, pieces: HostPieces) -> tuple[Mask, Mask]:
    """Return which nodes and which pieces of host work belong to work on the CPU.

    It is that between two launches of other device work on a thread, if an operator computes on the CPU there: these operators,
    and all copies between host and device with their calls and waits.
    """
    graph, host, table = trace.graph, attribution.host, attribution.table
    outermost = np.append(outermost_enclosing(host.parent, host.operator), np.int32(NONE))
    of_piece = outermost[pieces.event]
    ns = np.bincount(of_piece + 1, pieces.ns, minlength=len(outermost))[1:]
    ns[outermost[np.flatnonzero(table.kind[host.rows] == Kind.RUNTIME)]] = 0  # NONE is the last
    computes = np.append(ns[: len(host.rows)] >= _COMPUTES_NS, False)[of_piece] & (of_piece != NONE)
    names = table.name[attribution.device.rows[trace.event[graph.is_device]]]
    copies = [number for number in np.unique(names).tolist() if is_host_copy(table.names[number])]
    is_copy = np.zeros(len(graph), np.bool_)
    is_copy[graph.is_device] = np.isin(names, copies)
    is_copy[graph.is_device] &= attribution.device.phase[trace.event[graph.is_device]] != _TRANSFER
    launches, launches_other = (
        _launching(graph.launch[graph.is_device & mask], len(graph)) for mask in (is_copy, ~is_copy)
    )
    stretch = np.zeros(len(graph), np.int64)
    for lane in np.unique(graph.lane[~graph.is_device]).tolist():
        nodes = np.flatnonzero(~graph.is_device & (graph.lane == lane))
        ended = np.cumsum(launches_other[nodes])
        stretch[nodes] = (ended - launches_other[nodes]) * (graph.lane.max() + 1) + lane
    inside = np.isin(stretch, stretch[pieces.node[computes]]) & ~graph.is_device
    members = inside & ~launches_other
    is_piece = computes | (members & launches)[pieces.node]
    launched = graph.is_device & is_copy & (graph.launch != NONE)
    members[launched] = inside[graph.launch[launched]]
    return members, is_piece


def _launching(launch: Ids, count: int) -> Mask:
    result = np.zeros(count, np.bool_)
    result[launch[launch != NONE]] = True
    return result
