"""The step and the phase of each host event, with the evidence for the phase; `result.Evidence` has the order."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import HostEvents, Role
from profiler_kit.attribution.links import Nodes
from profiler_kit.attribution.result import PHASE_NUMBERS, Evidence, Step
from profiler_kit.records import marks
from profiler_kit.traces.names import OPTIMIZER_STEP, STEP_PREFIX
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask, Table

FORWARD, BACKWARD, RECOMPUTE = PHASE_NUMBERS["forward"], PHASE_NUMBERS["backward"], PHASE_NUMBERS["recompute"]
LOSS, OPTIMIZER, DATA = PHASE_NUMBERS["loss"], PHASE_NUMBERS["optimizer"], PHASE_NUMBERS["data"]
TRANSFER, OTHER = PHASE_NUMBERS["transfer"], PHASE_NUMBERS["other"]

_MOVES: Final = re.compile(r"\Aaten::(to|_to_copy|copy_|cuda)\Z")
_SEED: Final = re.compile(r"\Aaten::ones_like\Z")  # the gradient of the loss with respect to itself
_READ: Final = re.compile(r"\Aaten::item\Z")
_FOREVER: Final = np.iinfo(np.int64).max


# ---- steps


class Steps(NamedTuple):
    """The steps in order, on the host's clock; none overlaps another. `inferred`: no step is marked."""

    steps: tuple[Step, ...]
    start_ns: Ints
    end_ns: Ints
    inferred: bool = False

    def at(self, time_ns: Ints) -> Ids:
        """The index of the step at each time, or NONE between steps."""
        if not self.steps:
            return np.full(len(time_ns), NONE, dtype=np.int32)
        index = np.searchsorted(self.start_ns, time_ns, side="right") - 1
        inside = (index >= 0) & (time_ns < self.end_ns[np.maximum(index, 0)])
        return np.where(inside, index, NONE).astype(np.int32)


def find_steps(table: Table, events: HostEvents) -> Steps:
    """The steps of the trace: by marks of ours, else the profiler's, else each up to the end of an optimizer's step."""
    at = np.flatnonzero(events.role == Role.STEP)
    for prefix in (marks.STEP, STEP_PREFIX):
        marked = _named(table, events, at, prefix)
        if len(marked):
            marked = _on_one_thread(events, marked)
            names = table.name[events.rows[marked]].tolist()
            numbers = [_number(table.names[name].removeprefix(prefix)) for name in names]
            return _in_order(events.start_ns[marked], events.recorded_end_ns[marked], numbers)
    return _inferred(table, events)


def _named(table: Table, events: HostEvents, at: Ints, prefix: str) -> Ints:
    """Those of `at` whose names begin with `prefix`."""
    names = table.name[events.rows[at]].tolist()
    return at[np.array([table.names[name].startswith(prefix) for name in names], dtype=np.bool_)]


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def _on_one_thread(events: HostEvents, at: Ints) -> Ints:
    """Those of `at` on the thread that has most of them: several threads mark the same steps."""
    threads, counts = np.unique(events.thread[at], return_counts=True)
    most: Ints = at[events.thread[at] == threads[np.argmax(counts)]]
    return most


def _in_order(start: Ints, end: Ints, numbers: list[int | None], inferred: bool = False) -> Steps:
    order = np.argsort(start, kind="stable")
    order = order[np.concatenate(([True], np.diff(start[order]) > 0))]
    start, end = start[order], end[order]
    end[:-1] = np.minimum(end[:-1], start[1:])
    ordered = zip([numbers[place] for place in order.tolist()], start.tolist(), end.tolist(), strict=True)
    steps = tuple(
        Step(index if number is None else number, begins, ends) for index, (number, begins, ends) in enumerate(ordered)
    )
    return Steps(steps, start, end, inferred)


def _inferred(table: Table, events: HostEvents) -> Steps:
    """Each step from the end of an optimizer's step to the end of the next; the first from the first event on."""
    at = _named(table, events, np.flatnonzero(events.role == Role.OPTIMIZER), OPTIMIZER_STEP)
    if not len(at):
        return Steps((), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    at = _on_one_thread(events, at)
    # Of several optimizers, the one that comes last ends the step.
    names, first, counts = np.unique(table.name[events.rows[at]], return_index=True, return_counts=True)
    at = at[table.name[events.rows[at]] == names[np.lexsort((first, counts))[-1]]]
    ends = np.unique(events.end_ns[at])
    begins = np.concatenate(([min(int(events.start_ns.min()), int(ends[0]) - 1)], ends[:-1]))
    return _in_order(begins, ends, [None] * len(ends), inferred=True)


# ---- phases


class Phases(NamedTuple):
    """For each position a phase's number or NONE, and the evidence."""

    phase: Bytes
    evidence: Bytes

    def put(self, where: Mask | Ids | Ints, phase: int | Bytes, evidence: Evidence) -> None:
        """Writes `phase` at all of `where`."""
        self.phase[where] = phase
        self.evidence[where] = evidence


def host_phases(table: Table, events: HostEvents, nodes: Nodes, steps: Steps, copies: Ids) -> Phases:
    """The phases of the host's events. `copies`: positions of the launches of copies from the host to the device."""
    count = len(events.rows)
    phases = Phases(np.full(count, NONE, dtype=np.int8), np.zeros(count, dtype=np.int8))
    node, mark = events.node, events.mark
    call = np.maximum(events.module, events.wrapper)
    phases.put(call != NONE, FORWARD, Evidence.MODULE)
    marked = events.role[mark]
    marked[mark == NONE] = Role.PLAIN
    ours = events.has(Role.PHASE)
    if not ours:
        phases.put((marked == Role.OPTIMIZER) & (mark > call), OPTIMIZER, Evidence.MARK)
        phases.put((marked == Role.BACKWARD) & (mark > call), BACKWARD, Evidence.MARK)
        phases.put(events.loss > np.maximum(node, mark), LOSS, Evidence.MARK)
        phases.put(marked == Role.DATA, DATA, Evidence.MARK)
    inside = node > mark if not ours else node != NONE
    phases.put(inside, BACKWARD, Evidence.NODE)
    phases.put(inside & (events.redo > node), RECOMPUTE, Evidence.NODE)
    if not ours:
        phases.put(_derivatives(events, nodes, phases), BACKWARD, Evidence.NODE)
    else:
        numbers = {marks.phase(phase): number for phase, number in PHASE_NUMBERS.items()}
        phase_of_name = np.array([numbers.get(name, NONE) for name in table.names], dtype=np.int8)
        here = np.flatnonzero((marked == Role.PHASE) & (node == NONE))
        phases.put(here, phase_of_name[table.name[events.rows[mark[here]]]], Evidence.MARK)
    alone = np.isin(events.thread, _autograd_threads(events, nodes))
    phases.put(alone & (phases.phase == NONE), BACKWARD, Evidence.NODE)
    _put_transfers(table, events, phases, copies)
    if not ours:
        windows = _forward_windows(table, events, nodes, steps)
        for where, phase in ((windows.backward, BACKWARD), (windows.loss, LOSS), (windows.forward, FORWARD)):
            phases.put(where & (phases.phase == NONE), phase, Evidence.WINDOW)
    _put_rest(table, events, phases, steps)
    return phases


def _derivatives(events: HostEvents, nodes: Nodes, phases: Phases) -> Ids:
    """Positions that seem to be done again, but are a backward pass that makes a graph itself (`create_graph=True`).

    What a checkpoint does again is used up inside of the same node, or not at all; a derivative's graph is run after it.
    """
    used = np.flatnonzero(nodes.exact & (events.node[nodes.forward] != NONE))
    maker = events.outer_node[nodes.forward[used]]
    runner = events.outer_node[nodes.positions[used]]
    outlived = np.unique(maker[maker != runner])
    again = np.flatnonzero((phases.phase == RECOMPUTE) & (events.module < events.node)).astype(np.int32)
    return again[np.isin(events.outer_node[again], outlived)]


def _autograd_threads(events: HostEvents, nodes: Nodes) -> Ids:
    """Threads that run nodes and nothing else of a step: what is launched there between nodes is backward's too."""
    threads = np.unique(events.thread[nodes.positions])
    forward = nodes.forward[nodes.forward != NONE]
    marked = np.flatnonzero(np.isin(events.role, (Role.PHASE, Role.OPTIMIZER, Role.DATA, Role.FORWARD, Role.STEP)))
    others = np.concatenate((forward, marked))
    return np.setdiff1d(threads, events.thread[others[events.node[others] == NONE]]).astype(np.int32)


def _put_transfers(table: Table, events: HostEvents, phases: Phases, copies: Ids) -> None:
    """Gives phase "transfer" to all that an operator does that moves data, of those whose launches `copies` go to the device."""
    copies = copies[phases.phase[copies] == NONE]
    if not len(copies):
        return
    phases.put(copies, TRANSFER, Evidence.COPY)
    outer = np.unique(events.outer_operator[copies])
    outer = outer[(outer != NONE) & (phases.phase[outer] == NONE)]
    outer = outer[table.named(events.rows[outer], _MOVES)]
    phases.put(_below(events, outer) & (phases.phase == NONE), TRANSFER, Evidence.COPY)


def _below(events: HostEvents, roots: Ids) -> Mask:
    """Which events lie in one of `roots`, operators that no operator encloses, or are one."""
    is_root = np.zeros(len(events.rows) + 1, dtype=np.bool_)  # the last one stands for NONE
    is_root[roots] = True
    return is_root[events.outer_operator]


def _put_rest(table: Table, events: HostEvents, phases: Phases, steps: Steps) -> None:
    """Gives what is left a phase: forward in a step of a trace that trains nothing, else "other". Calls of Python keep none."""
    kind = table.kind[events.rows]
    work = ((kind == Kind.OPERATOR) | (kind == Kind.RUNTIME)) & ~np.isin(events.role, (Role.STEP, Role.PHASE))
    work &= phases.phase == NONE
    if not events.has(Role.NODE, Role.OPTIMIZER, Role.BACKWARD, Role.PHASE):
        phases.put(work & (steps.at(events.start_ns) != NONE), FORWARD, Evidence.WINDOW)
    phases.put(work & (phases.phase == NONE), OTHER, Evidence.NONE)


# ---- forward passes without modules: from the ops whose nodes backward runs to the first of these nodes


class _Windows(NamedTuple):
    """Which positions lie in a forward pass; of those after its last op, which read the loss, and which make backward's seed."""

    forward: Mask
    loss: Mask
    backward: Mask


class _Passes(NamedTuple):
    """Forward passes on one thread: since when, the end of the last op that backward uses, and until when; the first node after
    (or the end of time); whether the last op is the loss's.
    """

    since: Ints
    last: Ints
    until: Ints
    node: Ints
    to_loss: Mask


def _forward_windows(table: Table, events: HostEvents, nodes: Nodes, steps: Steps) -> _Windows:
    """The forward passes of a trace.

    A pass goes on from one op that backward uses to the next while nothing else comes between them on its thread: no node that
    this thread's ops made, no border of a step, no optimizer, DataLoader or call of backward. After its last such op it goes on
    up to the first node, or to a collective, which is of something else: of the next batch, of figures to be shown.
    """
    count = len(events.rows)
    windows = _Windows(*(np.zeros(count, dtype=bool) for _ in range(3)))
    used = np.unique(nodes.forward[nodes.exact])
    used = used[(events.node[used] == NONE) & (events.mark[used] == NONE)]
    if not len(used):
        return windows
    maker = np.where(nodes.forward != NONE, events.thread[nodes.forward], NONE)
    other = np.flatnonzero(np.isin(events.role, (Role.OPTIMIZER, Role.DATA, Role.BACKWARD, Role.COLLECTIVE)))
    roots = np.flatnonzero(events.outer_operator == np.arange(count)).astype(np.int32)
    bounds = np.searchsorted(events.thread, np.arange(int(events.thread.max()) + 2))
    for thread in np.unique(events.thread[used]).tolist():
        here = slice(int(bounds[thread]), int(bounds[thread + 1]))
        ran = np.sort(events.start_ns[nodes.positions[maker == thread]])
        of_thread = other[events.thread[other] == thread]
        passes = _passes(events, used[events.thread[used] == thread], ran, of_thread, steps)
        times = events.start_ns[here]
        # what goes on after the pass is around it and what follows: the loop's own range, a call of its function
        last = passes.until[np.maximum(np.searchsorted(passes.since, times, side="right") - 1, 0)]
        windows.forward[here] = _covered(times, passes.since, passes.until) & (events.end_ns[here] <= last)
        _split_tail(table, events, roots[events.thread[roots] == thread], passes, windows)
    return windows


def _passes(events: HostEvents, used: Ids, ran: Ints, other: Ints, steps: Steps) -> _Passes:
    """The passes of the ops `used` on one thread. `ran`: when their nodes began; `other`: marks and collectives on the thread."""
    collective = events.role[other] == Role.COLLECTIVE
    borders = np.concatenate((ran, events.start_ns[other[~collective]], steps.start_ns, steps.end_ns))
    borders = np.unique(borders)
    root = np.where(events.outer_operator[used] == NONE, used, events.outer_operator[used])
    begins, ends = events.start_ns[root], events.end_ns[root]
    section = np.searchsorted(borders, events.start_ns[used], side="right")
    first = np.flatnonzero(np.concatenate(([True], section[1:] != section[:-1])))
    final = np.append(first[1:], len(used)) - 1
    since, last = begins[first], np.maximum.reduceat(ends, first)
    node = np.append(ran, _FOREVER)[np.searchsorted(ran, last)]
    following = np.append(borders, _FOREVER)[section[first]]
    elsewhere = np.append(np.sort(events.start_ns[other[collective]]), _FOREVER)
    until = np.minimum(following, elsewhere[np.searchsorted(elsewhere[:-1], last)])
    until = np.where(following == node, np.maximum(until, last), last)
    return _Passes(since, last, until, np.where(following == node, node, _FOREVER), events.loss[used[final]] != NONE)


def _covered(times: Ints, since: Ints, until: Ints) -> Mask:
    """Which of the ascending `times` lie in one of the stretches."""
    change = np.zeros(len(times) + 1, dtype=np.int32)
    np.add.at(change, np.searchsorted(times, since), 1)
    np.add.at(change, np.searchsorted(times, until), -1)
    return np.cumsum(change[:-1]) > 0


def _split_tail(table: Table, events: HostEvents, roots: Ids, passes: _Passes, windows: _Windows) -> None:
    """Tells reading the loss and making backward's seed from the rest after a pass's last op; `roots` are of its thread."""
    begins = events.start_ns[roots]
    at = np.searchsorted(passes.last, begins, side="right") - 1
    after = (at >= 0) & (begins < passes.node[np.maximum(at, 0)])
    # The seed is what the thread does last before the first node runs.
    following = np.append(begins[1:], _FOREVER)
    seed = table.named(events.rows[roots], _SEED) & after & (following >= passes.node[np.maximum(at, 0)])
    read = table.named(events.rows[roots], _READ) & after
    read &= (begins < passes.until[np.maximum(at, 0)]) & passes.to_loss[np.maximum(at, 0)]
    windows.backward[:] |= _below(events, roots[seed])
    windows.loss[:] |= _below(events, roots[read])
