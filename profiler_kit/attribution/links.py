"""Joins over the columns: a device event to its launch, and a backward node to the forward operator that created it."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import HostEvents, Role
from profiler_kit.traces.names import TORCHSCRIPT, accumulates, node_agrees
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Mask, Table

# Threads that may have created a node. Programs have one, or one per device.
MAX_FORWARD_THREADS: Final = 64


# ---- device event -> launch


class Links(NamedTuple):
    """The host positions behind each device event, or NONE.

    `launch`: the runtime call with the same correlation. `source`: the launch, or else the operator with the same
    external id.
    """

    launch: Ids
    source: Ids


def link_launches(table: Table, events: HostEvents, rows: Ids) -> Links:
    """Return the host events that launched the device events `rows`.

    Of nested calls with one correlation, the outermost is the launch: a runtime call, not the driver call inside it.
    If a correlation is reused, the launch is the latest call before the event. The clocks of host and device differ,
    so if no call is earlier, it is the first.
    """
    calls = np.flatnonzero(table.correlation[events.rows] >= 0).astype(np.int32)
    calls = calls[table.kind[events.rows[calls]] == Kind.RUNTIME]
    if not len(calls):
        return Links(np.full(len(rows), NONE, dtype=np.int32), _operators_by_id(table, events, rows))
    correlation = table.correlation[events.rows[calls]]
    order = np.lexsort((events.start_ns[calls], events.thread[calls], correlation))
    calls, correlation = calls[order], correlation[order]
    start_ns, end_ns = events.start_ns[calls], events.end_ns[calls]
    is_outermost = np.ones(len(calls), dtype=bool)
    same = (correlation[1:] == correlation[:-1]) & (events.thread[calls[1:]] == events.thread[calls[:-1]])
    is_outermost[1:] = ~(same & (start_ns[1:] < end_ns[:-1]))
    calls, correlation, start_ns = calls[is_outermost], correlation[is_outermost], start_ns[is_outermost]
    order = np.lexsort((start_ns, correlation))
    calls, correlation, start_ns = calls[order], correlation[order], start_ns[order]
    event_correlation = table.correlation[rows]
    first = np.searchsorted(correlation, event_correlation)
    last = np.searchsorted(correlation, event_correlation, side="right") - 1
    linked = (event_correlation >= 0) & (last >= first)
    index = np.minimum(first, len(calls) - 1)
    reused = np.flatnonzero(linked & (last > first))
    if len(reused):
        latest = _latest_before(correlation, start_ns, event_correlation[reused], table.start_ns[rows[reused]] + 1)
        index[reused] = np.maximum(latest, first[reused])
    launch = np.where(linked, calls[index], NONE).astype(np.int32)
    return Links(launch, np.where(launch == NONE, _operators_by_id(table, events, rows), launch))


def _operators_by_id(table: Table, events: HostEvents, rows: Ids) -> Ids:
    """Return, for each of the device events `rows`, the operator with the same external id, or NONE.

    Some writers give no correlation. An id that several operators share is ignored, and so is an operator that began
    after the event.
    """
    event_id = table.external[rows]
    lacks_correlation = (table.correlation[rows] < 0) & (event_id > 0)
    operators = (
        np.flatnonzero(table.external[events.rows] > 0).astype(np.int32) if lacks_correlation.any() else events.rows[:0]
    )
    operators = operators[table.kind[events.rows[operators]] == Kind.OPERATOR]
    if not len(operators):
        return np.full(len(rows), NONE, dtype=np.int32)
    ids = table.external[events.rows[operators]]
    order = np.argsort(ids, kind="stable")
    operators, ids = operators[order], ids[order]
    first = np.searchsorted(ids, event_id)
    is_unique = np.searchsorted(ids, event_id, side="right") - first == 1
    candidate = operators[np.minimum(first, len(operators) - 1)]
    return np.where(
        lacks_correlation & is_unique & (events.start_ns[candidate] <= table.start_ns[rows]), candidate, NONE
    ).astype(np.int32)


def _latest_before(group: Ints, time: Ints, queries: Ints, before: Ints) -> Ints:
    """Return, for each (group, time), the last entry of the group before that time, or NONE.

    Entries are ordered by group, then time.
    """
    if not len(group):
        return np.full(len(queries), NONE, dtype=np.int64)
    starts = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    group_index = np.zeros(len(group), dtype=np.int64)
    group_index[starts[1:]] = 1
    group_index = np.cumsum(group_index)
    query_group = np.minimum(np.searchsorted(group[starts], queries), len(starts) - 1)
    times = np.sort(time)
    scale = len(times) + 1
    keys = group_index * scale + np.searchsorted(times, time)
    entry = np.searchsorted(keys, query_group * scale + np.searchsorted(times, before)) - 1
    is_match = (entry >= 0) & (group[np.maximum(entry, 0)] == queries)
    return np.where(is_match, entry, NONE)


# ---- autograd node -> forward op


class Nodes(NamedTuple):
    """Autograd's nodes in ascending position, and the position of the forward operator that created each, or NONE.

    `exact`: the operator carries the node's own sequence number. `unnumbered`: the node belongs to no forward
    operator: it accumulates a gradient, or has no number.
    """

    positions: Ids
    forward: Ids
    exact: Mask
    unnumbered: Mask


class _NumberedOps(NamedTuple):
    """Operators with a sequence number, by thread and number, then start.

    `group` numbers each (thread, sequence number). `first`: the first entry of each group.
    """

    positions: Ids
    start_ns: Ints
    thread: Ints
    number: Ints
    group: Ints
    first: Ints


def join_nodes(table: Table, events: HostEvents, step_start_by_position: Ints) -> Nodes:
    """Return the autograd nodes of the trace and their forward operators.

    A node's forward operator is the last one with the node's sequence number on the forward thread that began before
    the node. The node's own step is searched first, as a graph is usually created and consumed in one step. An
    operator of an earlier step counts if the names match (a loop that runs ahead). Otherwise the nearest lower number
    counts, because one operator may create several nodes and carries the number of the first.

    `step_start_by_position`: the start of the step of each host position.
    """
    nodes = np.flatnonzero(events.role == Role.NODE).astype(np.int32)
    names = table.name[events.rows[nodes]]
    leaf = np.array([accumulates(name) for name in table.names], dtype=bool)[names]
    forward = np.full(len(nodes), NONE, dtype=np.int32)
    exact = np.zeros(len(nodes), dtype=bool)
    ops = _numbered_ops(table, events)
    with_number = np.flatnonzero(table.sequence[events.rows[nodes]] >= 0)
    if len(with_number) and len(ops.positions):
        positions = nodes[with_number]
        start_ns, step_start_ns = events.start_ns[positions], step_start_by_position[positions]
        numbers, thread_ids = table.sequence[events.rows[positions]], table.forward_thread[events.rows[positions]]
        agreement = _NameAgreement(table, events)
        forward_thread = _vote_forward_threads(ops, numbers, thread_ids, start_ns, step_start_ns, positions, agreement)
        scripted = np.array([TORCHSCRIPT in name for name in table.names], dtype=bool)[names[with_number]]
        entry, is_exact = _find_forward(
            ops, forward_thread, numbers, start_ns, step_start_ns, scripted, positions, agreement
        )
        joined = (entry != NONE) & (forward_thread != NONE)
        forward[with_number] = np.where(joined, ops.positions[np.maximum(entry, 0)], NONE)
        exact[with_number] = joined & is_exact
    forward[leaf] = NONE
    return Nodes(nodes, forward, exact & ~leaf, leaf | (table.sequence[events.rows[nodes]] < 0))


def _numbered_ops(table: Table, events: HostEvents) -> _NumberedOps:
    positions = events.numbered
    thread, number, start = (
        events.thread[positions].astype(np.int64),
        table.sequence[events.rows[positions]],
        events.start_ns[positions],
    )
    order = np.lexsort((start, number, thread))
    positions, thread, number, start = positions[order], thread[order], number[order], start[order]
    is_first = np.ones(len(positions), dtype=bool)
    is_first[1:] = (thread[1:] != thread[:-1]) | (number[1:] != number[:-1])
    return _NumberedOps(positions, start, thread, number, np.cumsum(is_first) - 1, np.flatnonzero(is_first))


def _groups(ops: _NumberedOps, thread: Ints, number: Ints) -> tuple[Ints, Mask]:
    """Return the group of each (thread, number), else of the thread's nearest lower number, or NONE.

    The second value marks equal numbers.
    """
    of_thread, of_number = ops.thread[ops.first], ops.number[ops.first]
    numbers = np.unique(of_number)
    scale = len(numbers) + 1
    keys = of_thread * scale + np.searchsorted(numbers, of_number)
    rank = np.searchsorted(numbers, number, side="right") - 1
    index = np.searchsorted(keys, thread * scale + rank, side="right") - 1
    is_present = (index >= 0) & (rank >= 0) & (of_thread[np.maximum(index, 0)] == thread)
    index = np.where(is_present, index, NONE)
    return index, is_present & (of_number[np.maximum(index, 0)] == number)


def _latest_in_group(ops: _NumberedOps, group: Ints, before: Ints) -> Ints:
    """Return the last entry of each group that began before the time, or NONE (also for group NONE)."""
    return _latest_before(ops.group, ops.start_ns, group, before)


def _find_forward(
    ops: _NumberedOps,
    forward_thread: Ints,
    numbers: Ints,
    start_ns: Ints,
    step_start_ns: Ints,
    scripted: Mask,
    nodes: Ids,
    agreement: _NameAgreement,
) -> tuple[Ints, Mask]:
    group, has_number = _groups(ops, forward_thread, numbers)
    entry = _latest_in_group(ops, np.where(has_number, group, NONE), start_ns)
    in_step = (entry != NONE) & (ops.start_ns[np.maximum(entry, 0)] >= step_start_ns)
    in_earlier_step = (entry != NONE) & ~in_step & agreement.agrees(nodes, ops.positions[np.maximum(entry, 0)])
    lower_number = _latest_in_group(
        ops, np.where(has_number, _groups(ops, forward_thread, numbers - 1)[0], group), start_ns
    )
    lower_number = np.where(
        (lower_number != NONE) & (ops.start_ns[np.maximum(lower_number, 0)] >= step_start_ns), lower_number, NONE
    )
    result = np.where(in_step | in_earlier_step, entry, lower_number)
    is_exact = in_step | in_earlier_step
    scripted_nodes = np.flatnonzero(scripted)
    if len(scripted_nodes):
        # TorchScript creates one node for a section of the graph before it runs the operators of that section. They
        # carry the next number.
        group, has_number = _groups(ops, forward_thread[scripted_nodes], numbers[scripted_nodes] + 1)
        first = _latest_in_group(ops, np.where(has_number, group, NONE), step_start_ns[scripted_nodes]) + 1
        first_of_group = ops.first[np.maximum(group, 0)]
        first = np.maximum(first, first_of_group)
        is_valid = has_number & (first < len(ops.group))
        first = np.minimum(first, len(ops.group) - 1)
        is_valid &= (ops.group[first] == group) & (ops.start_ns[first] < start_ns[scripted_nodes])
        result[scripted_nodes], is_exact[scripted_nodes] = np.where(is_valid, first, NONE), is_valid
    return result, is_exact


def _vote_forward_threads(
    ops: _NumberedOps,
    numbers: Ints,
    thread_ids: Ints,
    start_ns: Ints,
    step_start_ns: Ints,
    nodes: Ids,
    agreement: _NameAgreement,
) -> Ints:
    """Return the host thread behind each node's "Fwd thread id" (the profiler's own numbering), or NONE.

    The nodes vote. A node votes for each thread that has an operator with its number in the node's step. The vote
    counts ten times if the names match (`aten::mul`, `MulBackward0`): with a reentrant checkpoint, the autograd
    thread creates nodes too, and numbers them from its own start. An operator of an earlier step counts only if the
    names match.
    """
    threads, sizes = np.unique(ops.thread, return_counts=True)
    threads = threads[np.argsort(-sizes, kind="stable")[:MAX_FORWARD_THREADS]]
    forward_threads, thread_index = np.unique(thread_ids, return_inverse=True)
    votes = np.zeros((len(forward_threads), len(threads)), dtype=np.int64)
    for column, thread in enumerate(threads.tolist()):
        group, has_number = _groups(ops, np.full(len(numbers), thread), numbers)
        entry = _latest_in_group(ops, np.where(has_number, group, NONE), start_ns)
        with_op = np.flatnonzero(entry != NONE)
        in_step = ops.start_ns[entry[with_op]] >= step_start_ns[with_op]
        agrees = agreement.agrees(nodes[with_op], ops.positions[entry[with_op]])
        weight = np.where(in_step, np.where(agrees, 10, 1), agrees)
        votes[:, column] = np.bincount(thread_index[with_op], weights=weight, minlength=len(forward_threads)).astype(
            np.int64
        )
    best = np.argmax(votes, axis=1)
    winner = np.where(votes[np.arange(len(forward_threads)), best] > 0, threads[best], NONE)
    return np.asarray(winner[thread_index], dtype=np.int64)


class _NameAgreement:
    """Tests whether a node's name is derived from an operator's: `MulBackward0` and `aten::mul`.

    Each pair of names is compared once.
    """

    def __init__(self, table: Table, events: HostEvents) -> None:
        self._table = table
        self._events = events

    def agrees(self, nodes: Ids, ops: Ids) -> Mask:
        """Return whether the names match, for each pair of positions."""
        count = len(self._table.names)
        name = self._table.name
        pair = name[self._events.rows[nodes]].astype(np.int64) * count + name[self._events.rows[ops]]
        pairs, pair_index = np.unique(pair, return_inverse=True)
        names = self._table.names
        matches = [node_agrees(names[pair // count], names[pair % count]) for pair in pairs.tolist()]
        return np.array(matches, dtype=bool)[pair_index] if matches else np.zeros(0, dtype=bool)
