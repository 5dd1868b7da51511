"""Loops of the program: the same operators many times in a row, as a loop over parameters, items or time steps calls them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import outermost_enclosing
from profiler_kit.attribution.result import Attribution
from profiler_kit.traces.table import NONE, Ids, Ints, Mask

MIN_REPEATS: Final = 8  # fewer rounds seldom matter, and a network has as many equal layers
MAX_PERIOD: Final = 32  # operators of a round


class Loop(NamedTuple):
    """The operators of one round, from any of them on. `rounds`: per step that has the loop."""

    operators: tuple[str, ...]
    rounds: float


class Loops(NamedTuple):
    """The loops of a trace. For each host event: the number of its loop, or NONE, and whether it is in the first round."""

    loops: tuple[Loop, ...]
    number: Ids
    is_first: Mask


class _Run(NamedTuple):
    """Operators `start` to `stop` of a sequence repeat with `period`."""

    start: int
    stop: int
    period: int


def operator_loops(attribution: Attribution, start_ns: int, end_ns: int) -> Loops:
    """Return the loops over outermost operators of each thread that begin from `start_ns` to `end_ns`.

    Work of backward belongs to the loop of its forward operator.
    """
    table, host = attribution.table, attribution.host
    count = len(host.rows)
    number, is_first = np.full(count + 1, NONE, np.int32), np.zeros(count + 1, np.bool_)
    outermost = outermost_enclosing(host.parent, host.operator)
    is_outer = (outermost == np.arange(count)) & (host.node == NONE)
    is_outer &= (host.start_ns >= start_ns) & (host.start_ns < end_ns)
    steps: defaultdict[tuple[str, ...], Counter[int]] = defaultdict(Counter)  # of each loop, the rounds by step
    for thread in np.unique(host.thread[is_outer]).tolist():
        at = np.flatnonzero(is_outer & (host.thread == thread))
        names = table.name[host.rows[at]]
        for run in _runs(names.astype(np.int64) * (int(host.step.max(initial=0)) + 2) + host.step[at] + 1):
            key = _rotated(tuple(table.names[i] for i in names[run.start : run.start + run.period].tolist()))
            steps[key][int(host.step[at[run.start]])] += (run.stop - run.start) // run.period
            inside = _enclosed(host.start_ns, host.end_ns, host.thread, thread, at[run.start], at[run.stop - 1])
            number[inside] = list(steps).index(key)
            second = at[run.start + run.period]
            is_first[inside] = host.start_ns[inside] < host.start_ns[second]
    forward = attribution.forward_of(host.node)
    forward = np.where(forward == NONE, np.int32(count), forward)
    is_node = host.node != NONE
    number[:count][is_node], is_first[:count][is_node] = number[forward[is_node]], is_first[forward[is_node]]
    rows = tuple(Loop(key, rounds.total() / len(rounds)) for key, rounds in steps.items())
    return Loops(rows, number[:count], is_first[:count])


def _enclosed(start: Ints, end: Ints, thread: Ids, number: int, first: int, last: int) -> Ints:
    """Return the events of a thread from the start of event `first` to the end of event `last`. Events are in order of start."""
    low, high = np.searchsorted(thread, np.array((number, number + 1), thread.dtype)).tolist()
    until = int(np.searchsorted(start[low:high], end[last], side="right")) + low
    return np.arange(first, until)


def _runs(values: Ints) -> Iterator[_Run]:
    """Yield the parts of `values` that repeat at least `MIN_REPEATS` times, those of short periods first; none overlap."""
    is_free = np.ones(len(values), np.bool_)
    for period in range(1, min(MAX_PERIOD, len(values) // MIN_REPEATS) + 1):
        equal = (values[:-period] == values[period:]) & is_free[:-period] & is_free[period:]
        border = np.flatnonzero(np.diff(np.concatenate(([0], equal.astype(np.int8), [0]))))
        for start, stop in border.reshape(-1, 2).tolist():
            rounds = (stop - start) // period + 1
            if rounds >= MIN_REPEATS:
                run = _Run(start, start + rounds * period, period)
                is_free[run.start : run.stop] = False
                yield run


def _rotated(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first of all rotations, so that a loop is the same wherever its first round begins."""
    return min(names[i:] + names[:i] for i in range(len(names)))
