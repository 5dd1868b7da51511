"""The host's clock: which stretches of a thread belong to whom, the innermost of what encloses them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.host_states import main_thread
from profiler_kit.attribution.ownership import Owned
from profiler_kit.attribution.spans import length, union
from profiler_kit.attribution.times import times
from profiler_kit.traces.table import NONE, Ids, Ints, Kind


class Stretches(NamedTuple):
    """Stretches of one thread in order, each with its owner; those of nobody are left out."""

    start: Ints
    end: Ints
    owner: Ids


def innermost(start: Ints, end: Ints, inside: Ids, after: Ids) -> Stretches:
    """Nested intervals of one thread, the enclosing ones first, as stretches.

    `inside` owns what follows an interval's start, `after` what follows its end.
    """
    full = np.flatnonzero(end > start)
    start, end, inside, after = start[full], end[full], inside[full], after[full]
    # at one instant: what ends, the inner first, and only then what starts, the outer first
    last = len(end) - 1 - np.argsort(end[::-1], kind="stable")
    at = np.concatenate((end[last], start))
    owner = np.concatenate((after[last], inside))
    order = np.argsort(at, kind="stable")
    at, owner = at[order], owner[order]
    keep = np.flatnonzero((owner[:-1] != NONE) & (at[1:] > at[:-1]))
    return Stretches(at[keep], at[keep + 1], owner[keep])


def phase_host_ns(owned: Owned) -> dict[int, int]:
    """The wall time of each phase (an index of TRACE_PHASES) on the host: what a stopwatch around it would show.

    On the main thread, and on those that run autograd's nodes, an instant belongs to the innermost event with a phase. What lies
    between two stretches of one phase in one step, with no other phase between them on any of these threads, is Python between
    the calls of that phase and belongs to it too. Where threads are in one phase at the same time, the instant counts once.
    """
    table, host = owned.table, owned.host
    outer = np.where(host.parent != NONE, host.phase[host.parent], NONE)
    changes = np.flatnonzero((host.phase != outer) & (host.phase != NONE) & (table.kind[host.rows] != Kind.RUNTIME))
    thread = table.thread[host.rows[changes]]
    running = np.flatnonzero(np.bincount(table.thread[host.rows[host.node != NONE]])).tolist()
    marks = np.array([step.start_ns for step in owned.steps], np.int64)
    found: list[Stretches] = []
    for number in dict.fromkeys((main_thread(owned), *running)):
        own = changes[thread == number]
        start, end = times(table, host.rows[own])
        found.append(innermost(start, end, host.phase[own].astype(np.int32), outer[own].astype(np.int32)))
    start, end, phase = _joined(found, np.sort(marks))
    return {number: length(union(start[phase == number], end[phase == number])) for number in np.unique(phase).tolist()}


def _joined(parts: list[Stretches], marks: Ints) -> Stretches:
    """Successive stretches of one owner between two of `marks`, whichever thread's, as one."""
    start, end, owner = (np.concatenate([part[i] for part in parts]) for i in range(3))
    order = np.argsort(start, kind="stable")
    start, end, owner = start[order], end[order], owner[order]
    step = np.searchsorted(marks, start, side="right")
    first = np.flatnonzero(np.concatenate(([True], (owner[1:] != owner[:-1]) | (step[1:] != step[:-1]))))
    if not len(start):
        return Stretches(start, end, owner)
    return Stretches(start[first], np.maximum.reduceat(end, first), owner[first])
