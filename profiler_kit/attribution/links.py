"""Joins over columns: a device event to the call that launched it, a backward node to the forward op that made it."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import HostEvents, Role
from profiler_kit.traces.names import TORCHSCRIPT, accumulates, node_agrees
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Mask, Table

# Threads that are asked whether they made a node; programs have one, or one per device.
FORWARD_THREADS: Final = 64


# ---- device event -> launch


class Links(NamedTuple):
    """Of each device event the runtime call that launched it, and that or else the operator whose id it carries; or NONE."""

    launch: Ids
    source: Ids


def link_launches(table: Table, events: HostEvents, rows: Ids) -> Links:
    """The positions of the host events that the device's events `rows` come from.

    Of calls with one correlation that lie in each other the launch is the outermost: a runtime call, not the driver's that it
    makes. Where a correlation was used again, it is the latest call before the event; clocks differ, so if none is, the first.
    """
    calls = np.flatnonzero(table.correlation[events.rows] >= 0).astype(np.int32)
    calls = calls[table.kind[events.rows[calls]] == Kind.RUNTIME]
    if not len(calls):
        return Links(np.full(len(rows), NONE, dtype=np.int32), _operators_by_id(table, events, rows))
    correlation = table.correlation[events.rows[calls]]
    order = np.lexsort((events.start_ns[calls], events.thread[calls], correlation))
    calls, correlation = calls[order], correlation[order]
    begins, ends = events.start_ns[calls], events.end_ns[calls]
    outermost = np.ones(len(calls), dtype=bool)
    same = (correlation[1:] == correlation[:-1]) & (events.thread[calls[1:]] == events.thread[calls[:-1]])
    outermost[1:] = ~(same & (begins[1:] < ends[:-1]))
    calls, correlation, begins = calls[outermost], correlation[outermost], begins[outermost]
    order = np.lexsort((begins, correlation))
    calls, correlation, begins = calls[order], correlation[order], begins[order]
    number = table.correlation[rows]
    first = np.searchsorted(correlation, number)
    last = np.searchsorted(correlation, number, side="right") - 1
    linked = (number >= 0) & (last >= first)
    at = np.minimum(first, len(calls) - 1)
    several = np.flatnonzero(linked & (last > first))
    if len(several):
        latest = _latest_in(correlation, begins, number[several], table.start_ns[rows[several]] + 1)
        at[several] = np.maximum(latest, first[several])
    launch = np.where(linked, calls[at], NONE).astype(np.int32)
    return Links(launch, np.where(launch == NONE, _operators_by_id(table, events, rows), launch))


def _operators_by_id(table: Table, events: HostEvents, rows: Ids) -> Ids:
    """For each of the device's events `rows` the position of the operator whose id it carries, or NONE.

    For writers that give no correlation. An id that several operators carry says nothing, and neither does an operator that
    began after the event.
    """
    number = table.external[rows]
    asking = (table.correlation[rows] < 0) & (number > 0)
    operators = np.flatnonzero(table.external[events.rows] > 0).astype(np.int32) if asking.any() else events.rows[:0]
    operators = operators[table.kind[events.rows[operators]] == Kind.OPERATOR]
    if not len(operators):
        return np.full(len(rows), NONE, dtype=np.int32)
    ids = table.external[events.rows[operators]]
    order = np.argsort(ids, kind="stable")
    operators, ids = operators[order], ids[order]
    first = np.searchsorted(ids, number)
    only = np.searchsorted(ids, number, side="right") - first == 1
    at = operators[np.minimum(first, len(operators) - 1)]
    return np.where(asking & only & (events.start_ns[at] <= table.start_ns[rows]), at, NONE).astype(np.int32)


def _latest_in(group: Ints, time: Ints, asked: Ints, before: Ints) -> Ints:
    """For each (asked group, time) the last entry of that group with an earlier time, or NONE; entries by group, then time."""
    if not len(group):
        return np.full(len(asked), NONE, dtype=np.int64)
    starts = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    number = np.zeros(len(group), dtype=np.int64)
    number[starts[1:]] = 1
    number = np.cumsum(number)
    at = np.minimum(np.searchsorted(group[starts], asked), len(starts) - 1)
    times = np.sort(time)
    scale = len(times) + 1
    keys = number * scale + np.searchsorted(times, time)
    entry = np.searchsorted(keys, at * scale + np.searchsorted(times, before)) - 1
    hit = (entry >= 0) & (group[np.maximum(entry, 0)] == asked)
    return np.where(hit, entry, NONE)


# ---- autograd node -> forward op


class Nodes(NamedTuple):
    """Autograd's nodes, positions ascending, and the forward op that made each (a position, or NONE).

    `exact`: the op carries the node's own number. `unnumbered`: of no op: it adds a gradient to a leaf, or has no number.
    """

    positions: Ids
    forward: Ids
    exact: Mask
    unnumbered: Mask


class _Numbered(NamedTuple):
    """Operators with a sequence number: by thread and number, then start. `group` is one per thread and number."""

    positions: Ids
    start_ns: Ints
    thread: Ints
    number: Ints
    group: Ints
    first: Ints  # of each group, its first entry


def join_nodes(table: Table, events: HostEvents, since_ns: Ints) -> Nodes:
    """The nodes of the trace and their forward ops. `since_ns`: for each position when its step began.

    A node's op is the latest-started with its sequence number on the thread that made it, before the node. It is looked for
    in the node's step first, as a graph is mostly made and used up in one: a number that no op of this step carries may be one
    that an op of the step before carried last. If there is none, the op of any step before, where the names agree (a loop
    that runs ahead); else that with the nearest lower number, as one op may make several nodes and carries the first's.
    """
    nodes = np.flatnonzero(events.role == Role.NODE).astype(np.int32)
    names = table.name[events.rows[nodes]]
    leaf = np.array([accumulates(name) for name in table.names], dtype=bool)[names]
    forward = np.full(len(nodes), NONE, dtype=np.int32)
    exact = np.zeros(len(nodes), dtype=bool)
    ops = _numbered(table, events)
    asking = np.flatnonzero(table.sequence[events.rows[nodes]] >= 0)
    if len(asking) and len(ops.positions):
        at = nodes[asking]
        begins, since = events.start_ns[at], since_ns[at]
        numbers, makers = table.sequence[events.rows[at]], table.forward_thread[events.rows[at]]
        agreement = _Agreement(table, events)
        maker = _forward_threads(ops, numbers, makers, begins, since, at, agreement)
        scripted = np.array([TORCHSCRIPT in name for name in table.names], dtype=bool)[names[asking]]
        entry, own = _find(ops, maker, numbers, begins, since, scripted, at, agreement)
        joined = (entry != NONE) & (maker != NONE)
        forward[asking] = np.where(joined, ops.positions[np.maximum(entry, 0)], NONE)
        exact[asking] = joined & own
    forward[leaf] = NONE
    return Nodes(nodes, forward, exact & ~leaf, leaf | (table.sequence[events.rows[nodes]] < 0))


def _numbered(table: Table, events: HostEvents) -> _Numbered:
    at = events.numbered
    thread, number, start = events.thread[at].astype(np.int64), table.sequence[events.rows[at]], events.start_ns[at]
    order = np.lexsort((start, number, thread))
    at, thread, number, start = at[order], thread[order], number[order], start[order]
    new = np.ones(len(at), dtype=bool)
    new[1:] = (thread[1:] != thread[:-1]) | (number[1:] != number[:-1])
    return _Numbered(at, start, thread, number, np.cumsum(new) - 1, np.flatnonzero(new))


def _groups(ops: _Numbered, thread: Ints, number: Ints) -> tuple[Ints, Mask]:
    """The group of each (thread, number), else of that thread's nearest lower number, or NONE; and whether it is its own."""
    of_thread, of_number = ops.thread[ops.first], ops.number[ops.first]
    numbers = np.unique(of_number)
    scale = len(numbers) + 1
    keys = of_thread * scale + np.searchsorted(numbers, of_number)
    rank = np.searchsorted(numbers, number, side="right") - 1
    at = np.searchsorted(keys, thread * scale + rank, side="right") - 1
    there = (at >= 0) & (rank >= 0) & (of_thread[np.maximum(at, 0)] == thread)
    at = np.where(there, at, NONE)
    return at, there & (of_number[np.maximum(at, 0)] == number)


def _latest(ops: _Numbered, group: Ints, before: Ints) -> Ints:
    """The last entry of each group that began before that time, or NONE (also for group NONE)."""
    return _latest_in(ops.group, ops.start_ns, group, before)


def _find(
    ops: _Numbered,
    maker: Ints,
    numbers: Ints,
    begins: Ints,
    since: Ints,
    scripted: Mask,
    at: Ids,
    agreement: _Agreement,
) -> tuple[Ints, Mask]:
    group, same = _groups(ops, maker, numbers)
    entry = _latest(ops, np.where(same, group, NONE), begins)
    here = (entry != NONE) & (ops.start_ns[np.maximum(entry, 0)] >= since)
    ahead = (entry != NONE) & ~here & agreement.of(at, ops.positions[np.maximum(entry, 0)])
    lower = _latest(ops, np.where(same, _groups(ops, maker, numbers - 1)[0], group), begins)
    lower = np.where((lower != NONE) & (ops.start_ns[np.maximum(lower, 0)] >= since), lower, NONE)
    chosen = np.where(here | ahead, entry, lower)
    own = here | ahead
    some = np.flatnonzero(scripted)
    if len(some):
        # TorchScript makes its one node for a stretch of the graph before it runs the stretch's ops: those carry the next number.
        group, same = _groups(ops, maker[some], numbers[some] + 1)
        first = _latest(ops, np.where(same, group, NONE), since[some]) + 1
        first_of_group = ops.first[np.maximum(group, 0)]
        first = np.maximum(first, first_of_group)
        good = same & (first < len(ops.group))
        first = np.minimum(first, len(ops.group) - 1)
        good &= (ops.group[first] == group) & (ops.start_ns[first] < begins[some])
        chosen[some], own[some] = np.where(good, first, NONE), good
    return chosen, own


def _forward_threads(
    ops: _Numbered, numbers: Ints, makers: Ints, begins: Ints, since: Ints, at: Ids, agreement: _Agreement
) -> Ints:
    """The thread behind each node's "Fwd thread id", the profiler's own number of it, found by vote of the nodes; or NONE.

    A node votes for the threads that have an op of its number in its step, and counts ten times where the names agree
    (`aten::mul`, `MulBackward0`): with a reentrant checkpoint the autograd thread makes nodes too, numbered from its own start.
    An op of a step before counts where the names agree.
    """
    threads, sizes = np.unique(ops.thread, return_counts=True)
    threads = threads[np.argsort(-sizes, kind="stable")[:FORWARD_THREADS]]
    forward_threads, which = np.unique(makers, return_inverse=True)
    votes = np.zeros((len(forward_threads), len(threads)), dtype=np.int64)
    for column, thread in enumerate(threads.tolist()):
        group, same = _groups(ops, np.full(len(numbers), thread), numbers)
        entry = _latest(ops, np.where(same, group, NONE), begins)
        have = np.flatnonzero(entry != NONE)
        here = ops.start_ns[entry[have]] >= since[have]
        agrees = agreement.of(at[have], ops.positions[entry[have]])
        weight = np.where(here, np.where(agrees, 10, 1), agrees)
        votes[:, column] = np.bincount(which[have], weights=weight, minlength=len(forward_threads)).astype(np.int64)
    best = np.argmax(votes, axis=1)
    chosen = np.where(votes[np.arange(len(forward_threads)), best] > 0, threads[best], NONE)
    return np.asarray(chosen[which], dtype=np.int64)


class _Agreement:
    """Whether a node's name is of an op's: `MulBackward0` of `aten::mul`. Each pair of names is compared once."""

    def __init__(self, table: Table, events: HostEvents) -> None:
        self._table = table
        self._nesting = events

    def of(self, nodes: Ids, ops: Ids) -> Mask:
        """For each pair of positions whether the names agree."""
        count = len(self._table.names)
        name = self._table.name
        pair = name[self._nesting.rows[nodes]].astype(np.int64) * count + name[self._nesting.rows[ops]]
        pairs, which = np.unique(pair, return_inverse=True)
        names = self._table.names
        agree = [node_agrees(names[pair // count], names[pair % count]) for pair in pairs.tolist()]
        return np.array(agree, dtype=bool)[which] if agree else np.zeros(0, dtype=bool)
