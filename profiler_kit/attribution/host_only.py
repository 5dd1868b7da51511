"""Traces without device work: the operators' own time stands where the kernels' would."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import CAUSE_NUMBERS, Gaps
from profiler_kit.attribution.host_time import Stretches, innermost
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution
from profiler_kit.records.traces import IDLE_CAUSES
from profiler_kit.traces.intervals import charge, overlap, subtract, sum_by, union
from profiler_kit.traces.names import COLLECTIVE_RANGE
from profiler_kit.traces.table import NONE, Ids, Ints, Kind


class HostLine(NamedTuple):
    """Operators on the host: each instant in which one runs, once, for the one whose stretch began first.

    `ns`: that, by position in `Attribution.host`; `self_ns`: the same for each thread by itself, more where they run at once.
    `start_ns`, `end_ns`: of the first operator and the last. `gaps`: when none runs.
    """

    ns: Ints
    self_ns: Ints
    start_ns: int
    end_ns: int
    gaps: Gaps


def host_line(owned: Attribution) -> HostLine:
    """The operators' own time; an operator within another is the one that counts."""
    parts = _own_stretches(owned)
    start, end, owner = (np.concatenate([part[i] for part in parts]) for i in range(3))
    order = np.argsort(start, kind="stable")
    start, end, owner = start[order], end[order], owner[order]
    charges = charge(start, end)
    idle = np.flatnonzero(charges.gap > 0)
    found = _gaps(owned, charges.covered[idle], start[idle], owner[idle])
    total = len(owned.host.rows)
    return HostLine(
        ns=sum_by(owner, charges.piece, total),
        self_ns=sum_by(owner, end - start, total),
        start_ns=int(start[0]) if len(start) else 0,
        end_ns=int(end.max()) if len(end) else 0,
        gaps=found,
    )


def _own_stretches(owned: Attribution) -> list[Stretches]:
    table, host = owned.table, owned.host
    position = np.flatnonzero(host.is_operator).astype(np.int32)
    parent = host.parent[position]
    outer = np.where(parent != NONE, host.operator[parent], NONE).astype(np.int32)
    _, first = np.unique(table.thread[host.rows[position]], return_index=True)  # host events stand by thread
    parts = [Stretches(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32))]
    for own, around in zip(np.split(position, first[1:]), np.split(outer, first[1:]), strict=True):
        parts.append(innermost(host.start_ns[own], host.end_ns[own], own, around))
    return parts


def _gaps(owned: Attribution, start: Ints, end: Ints, ended_by: Ids) -> Gaps:
    """Between operators the loop waits for data, or for other ranks, or it is Python that runs."""
    table, host = owned.table, owned.host
    ns = np.zeros((len(IDLE_CAUSES), len(start)), np.int64)
    main = (table.thread[host.rows] == owned.main_thread) & (host.phase == PHASE_NUMBERS["data"])
    data = union(host.start_ns[main], host.end_ns[main], ordered=True)
    ranges = np.flatnonzero(table.kind[host.rows] == Kind.ANNOTATION)
    ranges = ranges[table.named(host.rows[ranges], COLLECTIVE_RANGE)]
    other_ranks = subtract(union(host.start_ns[ranges], host.end_ns[ranges]), data)
    ns[CAUSE_NUMBERS["waiting for data"]] = overlap(data, start, end)
    ns[CAUSE_NUMBERS["communication"]] = overlap(other_ranks, start, end)
    ns[CAUSE_NUMBERS["python"]] = end - start - ns.sum(axis=0)
    return Gaps(start=start, end=end, ended_by=ended_by, ns=ns)
