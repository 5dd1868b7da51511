"""Rounds of a loop that read the same value, as heads and experts do, instead of each other's results, as layers do."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler_kit.attribution.operator_loops import Loops
from profiler_kit.attribution.result import Attribution
from profiler_kit.traces.table import NONE

_SUMS: Final = frozenset({"aten::add", "aten::add_"})
# A layer that joins its input to its result reads a value that other layers read as well.
_JOINS: Final = _SUMS | {"aten::cat", "aten::concat", "aten::lerp"}
MIN_SUMS: Final = 0.75  # for each round; of n rounds that read one value, n - 1 add to its gradient


def parallel_loops(attribution: Attribution, loops: Loops) -> list[bool]:
    """Return which loops have rounds that read the same value, by their backward pass.

    The gradient of a value that several operators read is the sum of theirs, and autograd adds up while it evaluates their nodes.
    Of layers in a row only those do that join their input to their result, which their forward operators show.
    """
    host, table = attribution.host, attribution.table
    is_sum = np.array([name in _SUMS for name in table.names], np.bool_)[table.name[host.rows]]
    sums = np.flatnonzero(is_sum & (host.parent == host.node) & (host.node != NONE) & (loops.number != NONE))
    count = np.bincount(loops.number[sums], minlength=len(loops.loops))
    return [
        count[index] >= MIN_SUMS * loop.rounds * len(np.unique(host.step[loops.number == index]))
        and _JOINS.isdisjoint(loop.operators)
        for index, loop in enumerate(loops.loops)
    ]
