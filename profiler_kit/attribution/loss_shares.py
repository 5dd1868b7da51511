"""How much of the time after calls of a model is the loss, in a trace that has marks of phases.

The mark of the loss is around everything between a call of a model and the next one, or the backward pass. The loop may do other
things there, such as a step of an environment.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.records import marks
from profiler_kit.records.mean_step import LossShares
from profiler_kit.traces.table import NONE, Ids, Ints, Mask


class _Gap(NamedTuple):
    """The mark of a loss in `step`. `before_call`: a model is called before the next backward pass."""

    step: int
    start_ns: int
    end_ns: int
    before_call: bool

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


class _Operators(NamedTuple):
    """The outermost operators of a thread in the order of time. `used`: backward runs a node that the operator made."""

    start_ns: Ints
    end_ns: Ints
    used: Mask


def loss_shares(attribution: Attribution) -> LossShares:
    """The shares of the loss in the traced time between calls, and from the last call to backward.

    Between calls, the loss is the operators of which backward runs a node, each with the time before it. A time without operators
    that is longer than all the rest is not the loss.
    """
    gaps = _usual_gaps(_gaps(attribution))
    if not gaps:
        return LossShares()
    operators = _operators(attribution)
    between, last = ([gap for gap in gaps if gap.before_call is is_between] for is_between in (True, False))
    return LossShares(between_calls=_share(operators, between), after_last_call=_share(operators, last))


def _gaps(attribution: Attribution) -> Iterator[_Gap]:
    host, table = attribution.host, attribution.table
    phases = {number: name for number, name in enumerate(table.names) if name.startswith(marks.PHASE)}
    positions = np.flatnonzero(np.isin(table.name[host.rows], list(phases)) & (host.step != NONE))
    before_call = False
    for position in positions[::-1].tolist():
        name = phases[int(table.name[host.rows[position]])]
        if name in (marks.phase("forward"), marks.phase("backward")):
            before_call = name == marks.phase("forward")
        elif name == marks.phase("loss"):
            yield _Gap(int(host.step[position]), int(host.start_ns[position]), int(host.end_ns[position]), before_call)


def _usual_gaps(gaps: Iterable[_Gap]) -> list[_Gap]:
    """Of the gaps at the same place of different steps, the one of median length: other processes may disturb any of them."""
    places: dict[int, list[_Gap]] = {}
    for _, of_step in itertools.groupby(gaps, key=lambda gap: gap.step):
        for place, gap in enumerate(of_step):
            places.setdefault(place, []).append(gap)
    return [sorted(same, key=lambda gap: gap.length_ns)[(len(same) - 1) // 2] for same in places.values()]


def _operators(attribution: Attribution) -> _Operators:
    """The outermost operators of the thread that has the marks of steps."""
    host, table = attribution.host, attribution.table
    steps = table.with_names(host.rows, lambda name: name.startswith(marks.STEP))
    operators = np.flatnonzero(host.is_operator & (host.thread == host.thread[np.argmax(steps)]))
    outer = operators[host.enclosing(host.operator, operators) == NONE]
    made: Ids = attribution.node_forward[attribution.node_forward != NONE]
    made = made[host.thread[made] == host.thread[operators[0]]] if len(operators) else made[:0]
    used = np.searchsorted(outer, made, side="right") - 1
    is_used = np.zeros(len(outer), dtype=np.bool_)
    is_used[used[used >= 0]] = True
    return _Operators(host.start_ns[outer], host.end_ns[outer], is_used)


def _share(operators: _Operators, gaps: list[_Gap]) -> float:
    length_ns = sum(gap.length_ns for gap in gaps)
    return sum(_loss_ns(operators, gap) for gap in gaps) / length_ns if length_ns else 1.0


def _loss_ns(operators: _Operators, gap: _Gap) -> int:
    inside = slice(*np.searchsorted(operators.start_ns, (gap.start_ns, gap.end_ns)).tolist())
    start_ns, end_ns, used = (column[inside] for column in operators)
    free_ns = np.append(start_ns, gap.end_ns) - np.concatenate(([gap.start_ns], end_ns))
    free_ns[2 * free_ns > gap.length_ns] = 0
    if gap.before_call:
        return int((free_ns[:-1] + end_ns - start_ns)[used].sum())
    return int(free_ns.sum() + (end_ns - start_ns).sum())
