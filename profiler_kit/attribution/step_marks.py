"""The steps of a trace: marked ones, or else those that its optimizer's calls end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.nesting import Nesting
from profiler_kit.attribution.ownership import Step
from profiler_kit.attribution.roles import Role
from profiler_kit.records import marks
from profiler_kit.traces.names import OPTIMIZER_STEP, STEP_PREFIX
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Table


class Steps(NamedTuple):
    """The steps in order, on the host's clock; none overlaps another. `inferred`: no mark says them."""

    steps: tuple[Step, ...]
    start_ns: Ints
    end_ns: Ints
    inferred: bool = False

    def at(self, time_ns: Ints) -> Ids:
        """The index of the step at each time, or NONE between steps."""
        if not self.steps:
            return np.full(len(time_ns), NONE, dtype=np.int32)
        found = np.searchsorted(self.start_ns, time_ns, side="right") - 1
        inside = (found >= 0) & (time_ns < self.end_ns[np.maximum(found, 0)])
        return np.where(inside, found, NONE).astype(np.int32)


def steps_of(table: Table, nesting: Nesting, role: Bytes) -> Steps:
    """The steps of the trace: by marks of ours, else the profiler's, else each up to the end of an optimizer's step."""
    at = np.flatnonzero(role == Role.STEP)
    names = table.name[nesting.rows[at]]
    for prefix in (marks.STEP, STEP_PREFIX):
        said = np.array([table.names[name].startswith(prefix) for name in names.tolist()], dtype=bool)
        if said.any():
            here = _on_one_thread(nesting, at[said])
            rows = nesting.rows[here]
            numbers = [_number(table.names[name].removeprefix(prefix)) for name in table.name[rows].tolist()]
            return _in_order(table.start_ns[rows], table.end_ns[rows], numbers)
    return _inferred(table, nesting, role)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def _on_one_thread(nesting: Nesting, at: Ints) -> Ints:
    """Those of `at` on the thread that has most of them: several threads mark the same steps."""
    threads, counts = np.unique(nesting.thread[at], return_counts=True)
    most: Ints = at[nesting.thread[at] == threads[np.argmax(counts)]]
    return most


def _in_order(start: Ints, end: Ints, numbers: list[int | None], inferred: bool = False) -> Steps:
    order = np.argsort(start, kind="stable")
    order = order[np.concatenate(([True], np.diff(start[order]) > 0))]
    start, end = start[order], end[order]
    end[:-1] = np.minimum(end[:-1], start[1:])
    said = [numbers[place] for place in order.tolist()]
    steps = tuple(
        Step(index if number is None else number, begins, ends)
        for index, (number, begins, ends) in enumerate(zip(said, start.tolist(), end.tolist(), strict=True))
    )
    return Steps(steps, start, end, inferred)


def _inferred(table: Table, nesting: Nesting, role: Bytes) -> Steps:
    """Each step from the end of an optimizer's step to the end of the next; the first from the first event on."""
    none = Steps((), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    at = np.flatnonzero(role == Role.OPTIMIZER)
    names = table.name[nesting.rows[at]]
    at = at[np.array([table.names[name].startswith(OPTIMIZER_STEP) for name in names.tolist()], dtype=bool)]
    if not len(at):
        return none
    at = _on_one_thread(nesting, at)
    # Of several optimizers, the one that comes last ends the step.
    used, first, counts = np.unique(table.name[nesting.rows[at]], return_index=True, return_counts=True)
    chosen = used[np.lexsort((first, counts))[-1]]
    at = at[table.name[nesting.rows[at]] == chosen]
    ends = np.unique(nesting.end_ns[at])
    begins = np.concatenate(([min(int(nesting.start_ns.min()), int(ends[0]) - 1)], ends[:-1]))
    return _in_order(begins, ends, [None] * len(ends), inferred=True)
