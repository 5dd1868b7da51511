"""Operators on the host's clock: their own time is the work of a trace without a device."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import CAUSE_NUMBERS, Gaps
from profiler_kit.attribution.events import innermost_enclosing
from profiler_kit.attribution.host_time import Stretches, innermost
from profiler_kit.attribution.phases import RECOMPUTE
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution
from profiler_kit.records.traces import IDLE_CAUSES
from profiler_kit.traces.intervals import charge, overlap, subtract, sum_by, union
from profiler_kit.traces.names import COLLECTIVE_RANGE
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask


class HostWork(NamedTuple):
    """Work on the host, in order of position: every operator, and what autograd nodes spend on recomputing outside operators.

    `position`: of the operator, the recomputed call or the node in `Attribution.host`. `phase`, `module`: as in `Host`.
    `recomputes`: which entries are no operator's own.
    """

    position: Ids
    phase: Bytes
    module: Ids
    recomputes: Mask


class HostLine(NamedTuple):
    """When operators run on the host. Each instant is charged once, to the stretch that began first.

    `work`: the entries. `ns`: of each entry the charged time, `self_ns` the same for each thread by itself, more where threads
    run at once. `start`, `end`, `owner`: stretches by start, and the entry of each; the last `piece` ns of a stretch are
    charged to it. `covered`: when all stretches before it had ended.
    """

    work: HostWork
    ns: Ints
    self_ns: Ints
    start: Ints
    end: Ints
    owner: Ids
    piece: Ints
    covered: Ints

    @property
    def span_ns(self) -> int:
        """From the first operator's start to the last one's end."""
        return int(self.end.max() - self.start[0]) if len(self.start) else 0


def host_line(attribution: Attribution, among: Mask | None = None) -> HostLine:
    """The own time of the operators in `among` (host positions; None: of all): what no operator inside them covers.

    An autograd node that does forward work again (activation checkpointing) also covers what the interpreter does between its
    operators. That time is recomputation, of the module called there; outside of such modules it is of the module that asked
    for the recomputation, from the node's start to the end of its last recomputed event, and on to the node's next operator.
    The rest of the node is backward.
    """
    host = attribution.host
    chosen = np.ones(len(host.rows), np.bool_) if among is None else among
    operators = np.flatnonzero(host.is_operator & chosen).astype(np.int32)
    redone = np.flatnonzero((host.phase == RECOMPUTE) & (host.node != NONE) & chosen).astype(np.int32)
    kind = attribution.table.kind[host.rows[redone]]
    redone, kind = redone[kind != Kind.RUNTIME], kind[kind != Kind.RUNTIME]
    calls = redone[(kind == Kind.ANNOTATION) | (kind == Kind.PYTHON)]
    nodes = np.unique(host.node[redone])
    position = np.concatenate((nodes, calls, operators))
    order = np.argsort(position, kind="stable")  # of one position the node's recomputation comes before its backward
    recomputes = (np.arange(len(position)) < len(nodes) + len(calls))[order]
    position = position[order]
    asking = np.searchsorted(attribution.nodes, nodes)
    module = np.concatenate((attribution.node_redone[asking], host.module[calls], host.module[operators]))[order]
    phase = np.where(recomputes, RECOMPUTE, host.phase[position]).astype(np.int8)

    intervals = np.sort(np.concatenate((calls, operators)))
    parts, until = _self_time(attribution, intervals, nodes, redone)
    # The last entry of a position is not the recomputation.
    owner = np.searchsorted(position, parts.owner, side="right") - 1
    if len(nodes):
        node = np.minimum(np.searchsorted(nodes, parts.owner), len(nodes) - 1)
        owner[(nodes[node] == parts.owner) & (parts.start < until[node])] -= 1
    charges = charge(parts.start, parts.end)
    total = len(position)
    return HostLine(
        work=HostWork(position.astype(np.int32), phase, module.astype(np.int32), recomputes),
        ns=sum_by(owner, charges.piece, total),
        self_ns=sum_by(owner, parts.end - parts.start, total),
        start=parts.start,
        end=parts.end,
        owner=owner.astype(np.int32),
        piece=charges.piece,
        covered=charges.covered,
    )


def _self_time(attribution: Attribution, intervals: Ids, nodes: Ids, redone: Ids) -> tuple[Stretches, Ints]:
    """The stretches of the events at `intervals` that no inner one covers, by start; until when each of `nodes` recomputes."""
    host = attribution.host
    wanted = np.zeros(len(host.rows), np.bool_)
    wanted[intervals] = True
    around = innermost_enclosing(host.parent, wanted)
    outer = host.enclosing(around, intervals)
    start, end = host.start_ns[intervals], host.end_ns[intervals]
    _, first = np.unique(host.thread[intervals], return_index=True)  # host events stand by thread
    bounds = [*first.tolist(), len(intervals)]
    threads = [
        innermost(start[low:high], end[low:high], intervals[low:high], outer[low:high])
        for low, high in pairwise(bounds)
    ]
    empty = np.zeros(0, np.int64)
    threads.append(Stretches(empty, empty, np.zeros(0, np.int32)))
    begins, ends, owner = (np.concatenate([part[i] for part in threads]) for i in range(3))
    order = np.argsort(begins, kind="stable")

    last = np.full(len(nodes), np.iinfo(np.int64).min)
    np.maximum.at(last, np.searchsorted(nodes, host.node[redone]), host.end_ns[redone])
    following = np.full(len(nodes), np.iinfo(np.int64).max)
    if len(nodes):
        node = np.minimum(np.searchsorted(nodes, outer), len(nodes) - 1)
        after = (nodes[node] == outer) & (start >= last[node])
        np.minimum.at(following, node[after], start[after])
    until = np.where(following == np.iinfo(np.int64).max, last, following)
    return Stretches(begins[order], ends[order], owner[order]), until


def host_gaps(attribution: Attribution, line: HostLine, covered: Ints) -> Gaps:
    """The stretches in which no operator runs, each from `covered` to the start of what ends it, split by cause.

    Between operators the loop waits for data, or for other ranks, or it is Python that runs.
    """
    table, host = attribution.table, attribution.host
    idle = np.flatnonzero(line.start > covered)
    start, end = covered[idle], line.start[idle]
    ns = np.zeros((len(IDLE_CAUSES), len(idle)), np.int64)
    main = (host.thread == attribution.main_thread) & (host.phase == PHASE_NUMBERS["data"])
    data = union(host.start_ns[main], host.end_ns[main], ordered=True)
    ranges = np.flatnonzero(table.kind[host.rows] == Kind.ANNOTATION)
    ranges = ranges[table.named(host.rows[ranges], COLLECTIVE_RANGE)]
    other_ranks = subtract(union(host.start_ns[ranges], host.end_ns[ranges]), data)
    ns[CAUSE_NUMBERS["waiting for data"]] = overlap(data, start, end)
    ns[CAUSE_NUMBERS["communication"]] = overlap(other_ranks, start, end)
    ns[CAUSE_NUMBERS["python"]] = end - start - ns.sum(axis=0)
    return Gaps(start=start, end=end, ended_by=line.work.position[line.owner[idle]], ns=ns)
