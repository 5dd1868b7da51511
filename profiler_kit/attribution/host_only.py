"""Self time of operators on the host's clock: the work of a trace without a device."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import CAUSE_NUMBERS, Gaps
from profiler_kit.attribution.events import innermost_enclosing
from profiler_kit.attribution.host_activity import compilation_intervals
from profiler_kit.attribution.host_time import Stretches, innermost
from profiler_kit.attribution.phases import RECOMPUTE
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution
from profiler_kit.records.traces import IDLE_CAUSES
from profiler_kit.traces.intervals import Intervals, assign_to_first, join, overlap, pieces, subtract, sum_by, union
from profiler_kit.traces.names import COLLECTIVE_RANGE
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask

# Between two nodes, the engine takes microseconds.
_LONG_GAP_NS: Final = 1_000_000


class HostEntries(NamedTuple):
    """Entries of host work, ordered by position: operators, and recomputation in autograd nodes outside operators.

    `position`: the operator, the recomputed call or the node in `Attribution.host`. `phase`, `module`: as in `Host`.
    `recomputes`: which entries are recomputation outside operators.
    """

    position: Ids
    phase: Bytes
    module: Ids
    recomputes: Mask


class HostTimeline(NamedTuple):
    """The time in which operators run on the host. Each instant counts for the stretch that began first.

    `work`: the entries. `ns`: the time of each entry, with each instant counted once. `self_ns`: the self time of
    each entry, summed over the threads. It exceeds `ns` where threads run at the same time. `start`, `end`, `entry`:
    stretches by start, and the entry of each. `piece`: the last `piece` ns of a stretch count for it. `covered`: the
    time by which all stretches before it had ended.
    """

    work: HostEntries
    ns: Ints
    self_ns: Ints
    start: Ints
    end: Ints
    entry: Ids
    piece: Ints
    covered: Ints

    @property
    def latest(self) -> Ints:
        """The latest end; nothing without stretches."""
        return self.end.max(keepdims=True) if len(self.end) else self.end


def host_timeline(attribution: Attribution, mask: Mask | None = None) -> HostTimeline:
    """Return the self time of the operators in `mask` (host positions; None: all operators).

    Self time excludes the operators inside an operator. In an autograd node that recomputes forward work (activation
    checkpointing), the time of the interpreter between operators is recomputation too. It counts for the module
    called there. Outside such modules it counts for the module that requested the recomputation, from the node's
    start to the end of its last recomputed event, and on to the node's next operator. The rest of the node is
    backward.
    """
    host = attribution.host
    included = np.ones(len(host.rows), np.bool_) if mask is None else mask
    operators = np.flatnonzero(host.is_operator & included).astype(np.int32)
    redone = np.flatnonzero((host.phase == RECOMPUTE) & (host.node != NONE) & included).astype(np.int32)
    kind = attribution.table.kind[host.rows[redone]]
    redone, kind = redone[kind != Kind.RUNTIME], kind[kind != Kind.RUNTIME]
    calls = redone[(kind == Kind.ANNOTATION) | (kind == Kind.PYTHON)]
    nodes = np.unique(host.node[redone])
    position = np.concatenate((nodes, calls, operators))
    order = np.argsort(position, kind="stable")  # at one position, the node's recomputation comes before its backward
    recomputes = (np.arange(len(position)) < len(nodes) + len(calls))[order]
    position = position[order]
    node_index = np.searchsorted(attribution.nodes, nodes)
    module = np.concatenate((attribution.node_redone[node_index], host.module[calls], host.module[operators]))[order]
    phase = np.where(recomputes, RECOMPUTE, host.phase[position]).astype(np.int8)

    intervals = np.sort(np.concatenate((calls, operators)))
    stretches, recompute_end = _self_stretches(attribution, intervals, nodes, redone)
    # The last entry of a position is the one that is not recomputation.
    entry = np.searchsorted(position, stretches.event, side="right") - 1
    if len(nodes):
        node = np.minimum(np.searchsorted(nodes, stretches.event), len(nodes) - 1)
        entry[(nodes[node] == stretches.event) & (stretches.start < recompute_end[node])] -= 1
    assigned = assign_to_first(stretches.start, stretches.end)
    total = len(position)
    return HostTimeline(
        work=HostEntries(position.astype(np.int32), phase, module.astype(np.int32), recomputes),
        ns=sum_by(entry, assigned.piece, total),
        self_ns=sum_by(entry, stretches.end - stretches.start, total),
        start=stretches.start,
        end=stretches.end,
        entry=entry.astype(np.int32),
        piece=assigned.piece,
        covered=assigned.covered,
    )


def _self_stretches(attribution: Attribution, intervals: Ids, nodes: Ids, redone: Ids) -> tuple[Stretches, Ints]:
    """Return the parts of `intervals` that no inner event covers, by start.

    The second value is the time until which each of `nodes` recomputes.
    """
    host = attribution.host
    is_interval = np.zeros(len(host.rows), np.bool_)
    is_interval[intervals] = True
    enclosing_interval = innermost_enclosing(host.parent, is_interval)
    outer = host.enclosing(enclosing_interval, intervals)
    start, end = host.start_ns[intervals], host.end_ns[intervals]
    _, first_of_thread = np.unique(host.thread[intervals], return_index=True)  # host events are ordered by thread
    bounds = [*first_of_thread.tolist(), len(intervals)]
    threads = [
        innermost(start[low:high], end[low:high], intervals[low:high], outer[low:high])
        for low, high in pairwise(bounds)
    ]
    empty = np.zeros(0, np.int64)
    threads.append(Stretches(empty, empty, np.zeros(0, np.int32)))
    starts, ends, events = (np.concatenate([part[i] for part in threads]) for i in range(3))
    order = np.argsort(starts, kind="stable")

    last_recomputed = np.full(len(nodes), np.iinfo(np.int64).min)
    np.maximum.at(last_recomputed, np.searchsorted(nodes, host.node[redone]), host.end_ns[redone])
    next_start = np.full(len(nodes), np.iinfo(np.int64).max)
    if len(nodes):
        node = np.minimum(np.searchsorted(nodes, outer), len(nodes) - 1)
        after = (nodes[node] == outer) & (start >= last_recomputed[node])
        np.minimum.at(next_start, node[after], start[after])
    recompute_end = np.where(next_start == np.iinfo(np.int64).max, last_recomputed, next_start)
    return Stretches(starts[order], ends[order], events[order]), recompute_end


def host_gaps(attribution: Attribution, timeline: HostTimeline, windows: Intervals) -> Gaps:
    """Return the time in `windows` without an operator, split by cause.

    Between operators, the loop waits for data, for other ranks or for a backward pass that the trace does not hold, or runs
    Python. No operator ends a gap at the end of a window (NONE).
    """
    table, host = attribution.table, attribution.host
    idle = np.flatnonzero(timeline.start[1:] > timeline.covered[1:]) + 1
    before = np.concatenate((windows.start[:1], timeline.covered[idle], timeline.latest))
    after = np.concatenate((timeline.start[:1], timeline.start[idle], windows.end[-1:]))
    ending = np.concatenate((timeline.entry[:1], timeline.entry[idle]))
    ended_by = np.append(timeline.work.position[ending], NONE)
    if not len(windows.start):
        before, after, ended_by = before[:0], after[:0], ended_by[:0]
    gap, start, end = pieces(windows, before, after)
    ended_by = np.where(end == after[gap], ended_by[gap], NONE)
    ns = np.zeros((len(IDLE_CAUSES), len(start)), np.int64)
    main_data = (host.thread == attribution.main_thread) & (host.phase == PHASE_NUMBERS["data"])
    data = union(host.start_ns[main_data], host.end_ns[main_data], ordered=True)
    ranges = np.flatnonzero(table.kind[host.rows] == Kind.ANNOTATION)
    ranges = ranges[table.named(host.rows[ranges], COLLECTIVE_RANGE)]
    other_ranks = subtract(union(host.start_ns[ranges], host.end_ns[ranges]), data)
    compiling = subtract(compilation_intervals(attribution), join(data, other_ranks))
    ns[CAUSE_NUMBERS["waiting for data"]] = overlap(data, start, end)
    ns[CAUSE_NUMBERS["communication"]] = overlap(other_ranks, start, end)
    ns[CAUSE_NUMBERS["compilation"]] = overlap(compiling, start, end)
    elsewhere = subtract(_backward_elsewhere(attribution, start, end), join(join(data, other_ranks), compiling))
    ns[CAUSE_NUMBERS["unknown"]] = overlap(elsewhere, start, end)
    ns[CAUSE_NUMBERS["python"]] = end - start - ns.sum(axis=0)
    return Gaps(start=start, end=end, ended_by=ended_by.astype(np.int32), ns=ns)


def _backward_elsewhere(attribution: Attribution, start: Ints, end: Ints) -> Intervals:
    """Return the long gaps within marked backward passes of the main thread in which no autograd node runs.

    On a CPU, the calling thread runs the nodes. For work on a device it waits for autograd's own threads, which a profiler of
    the main thread alone does not record.
    """
    host = attribution.host
    is_range = attribution.table.kind[host.rows] == Kind.ANNOTATION
    passes = is_range & (host.thread == attribution.main_thread) & (host.phase == PHASE_NUMBERS["backward"])
    nodes = attribution.nodes
    waiting = subtract(
        union(host.start_ns[passes], host.end_ns[passes], ordered=True),
        union(host.start_ns[nodes], host.end_ns[nodes]),
    )
    is_long = end - start >= _LONG_GAP_NS
    return subtract(waiting, subtract(waiting, union(start[is_long], end[is_long], ordered=True)))
