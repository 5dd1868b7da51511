"""The step and the phase of each host event, with the evidence for the phase.

`result.Evidence` has the order of precedence.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import HostEvents, Role, user_phase
from profiler_kit.attribution.links import Nodes
from profiler_kit.attribution.result import PHASE_NUMBERS, Evidence, Step
from profiler_kit.records import marks
from profiler_kit.traces.names import OPTIMIZER_STEP, STEP_PREFIX
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask, Table

FORWARD, BACKWARD, RECOMPUTE = PHASE_NUMBERS["forward"], PHASE_NUMBERS["backward"], PHASE_NUMBERS["recompute"]
LOSS, OPTIMIZER, DATA = PHASE_NUMBERS["loss"], PHASE_NUMBERS["optimizer"], PHASE_NUMBERS["data"]
TRANSFER, OTHER = PHASE_NUMBERS["transfer"], PHASE_NUMBERS["other"]

_COPY_OPERATOR: Final = re.compile(r"\Aaten::(to|_to_copy|copy_|cuda)\Z")
_GRADIENT_SEED: Final = re.compile(r"\Aaten::ones_like\Z")  # the gradient of the loss with respect to itself
_READ_SCALAR: Final = re.compile(r"\Aaten::item\Z")
_FOREVER: Final = np.iinfo(np.int64).max


# ---- steps


class Steps(NamedTuple):
    """The steps in order, on the host's clock, without overlap. `inferred`: the trace marks no steps."""

    steps: tuple[Step, ...]
    start_ns: Ints
    end_ns: Ints
    inferred: bool = False

    def at(self, time_ns: Ints) -> Ids:
        """Return the index of the step at each time, or NONE between steps."""
        if not self.steps:
            return np.full(len(time_ns), NONE, dtype=np.int32)
        index = np.searchsorted(self.start_ns, time_ns, side="right") - 1
        inside = (index >= 0) & (time_ns < self.end_ns[np.maximum(index, 0)])
        return np.where(inside, index, NONE).astype(np.int32)


def find_steps(table: Table, events: HostEvents) -> Steps:
    """Return the steps of the trace.

    The steps come from the marks of profiler_kit, else from the marks of torch.profiler (ProfilerStep#N). In a trace
    without marks, a step ends where an optimizer's step ends.
    """
    at = np.flatnonzero(events.role == Role.STEP)
    for prefix in (marks.STEP, STEP_PREFIX):
        marked = _with_prefix(table, events, at[events.recorded_end_ns[at] > events.start_ns[at]], prefix)
        if len(marked):
            marked = _on_one_thread(events, marked)
            names = table.name[events.rows[marked]].tolist()
            numbers = [_step_number(table.names[name].removeprefix(prefix)) for name in names]
            return _ordered_steps(events.start_ns[marked], events.recorded_end_ns[marked], numbers)
    return _infer_steps(table, events)


def _with_prefix(table: Table, events: HostEvents, at: Ints, prefix: str) -> Ints:
    """Return those of `at` whose names begin with `prefix`."""
    names = table.name[events.rows[at]].tolist()
    return at[np.array([table.names[name].startswith(prefix) for name in names], dtype=np.bool_)]


def _step_number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def _on_one_thread(events: HostEvents, at: Ints) -> Ints:
    """Return those of `at` on the thread that has most of them. Several threads mark the same steps."""
    threads, counts = np.unique(events.thread[at], return_counts=True)
    result: Ints = at[events.thread[at] == threads[np.argmax(counts)]]
    return result


def _ordered_steps(start: Ints, end: Ints, numbers: list[int | None], inferred: bool = False) -> Steps:
    order = np.argsort(start, kind="stable")
    order = order[np.concatenate(([True], np.diff(start[order]) > 0))]
    start, end = start[order], end[order]
    end[:-1] = np.minimum(end[:-1], start[1:])
    ordered = zip([numbers[place] for place in order.tolist()], start.tolist(), end.tolist(), strict=True)
    steps = tuple(
        Step(index if number is None else number, step_start, step_end)
        for index, (number, step_start, step_end) in enumerate(ordered)
    )
    return Steps(steps, start, end, inferred)


def _infer_steps(table: Table, events: HostEvents) -> Steps:
    """Return steps from the end of one optimizer step to the end of the next. The first begins with the first event."""
    optimizer_steps = _with_prefix(table, events, np.flatnonzero(events.role == Role.OPTIMIZER), OPTIMIZER_STEP)
    if not len(optimizer_steps):
        return Steps((), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    optimizer_steps = _on_one_thread(events, optimizer_steps)
    # With several optimizers, the last one ends the step.
    names, first, counts = np.unique(table.name[events.rows[optimizer_steps]], return_index=True, return_counts=True)
    optimizer_steps = optimizer_steps[
        table.name[events.rows[optimizer_steps]] == names[np.lexsort((first, counts))[-1]]
    ]
    ends = np.unique(events.end_ns[optimizer_steps])
    starts = np.concatenate(([min(int(events.start_ns.min()), int(ends[0]) - 1)], ends[:-1]))
    return _ordered_steps(starts, ends, [None] * len(ends), inferred=True)


# ---- phases


class Phases(NamedTuple):
    """For each position, the number of a phase or NONE, and the evidence."""

    phase: Bytes
    evidence: Bytes

    def put(self, positions: Mask | Ids | Ints, phase: int | Bytes, evidence: Evidence) -> None:
        """Write `phase` and `evidence` at all of `positions`."""
        self.phase[positions] = phase
        self.evidence[positions] = evidence


def host_phases(table: Table, events: HostEvents, nodes: Nodes, steps: Steps, copies: Ids) -> Phases:
    """Return the phases of the host events. `copies`: positions of the launches of copies from host to device."""
    count = len(events.rows)
    phases = Phases(np.full(count, NONE, dtype=np.int8), np.zeros(count, dtype=np.int8))
    node, mark = events.node, events.mark
    module_call = np.maximum(events.module, events.wrapper)
    phases.put(module_call != NONE, FORWARD, Evidence.MODULE)
    mark_role = events.role[mark]
    mark_role[mark == NONE] = Role.PLAIN
    has_phase_marks = events.has(Role.PHASE)
    if not has_phase_marks:
        phases.put((mark_role == Role.OPTIMIZER) & (mark > module_call), OPTIMIZER, Evidence.MARK)
        phases.put((mark_role == Role.BACKWARD) & (mark > module_call), BACKWARD, Evidence.MARK)
        phases.put(events.loss > np.maximum(node, mark), LOSS, Evidence.MARK)
        phases.put(mark_role == Role.DATA, DATA, Evidence.MARK)
    inside = node > mark if not has_phase_marks else node != NONE
    phases.put(inside, BACKWARD, Evidence.NODE)
    phases.put(inside & (events.redo > node), RECOMPUTE, Evidence.NODE)
    phases.put(_double_backward(events, nodes, phases), BACKWARD, Evidence.NODE)
    if has_phase_marks:
        numbers = {marks.phase(phase): number for phase, number in PHASE_NUMBERS.items()}
        phase_of_name = np.array([numbers.get(name, NONE) for name in table.names], dtype=np.int8)
        positions = np.flatnonzero((mark_role == Role.PHASE) & (node == NONE))
        phases.put(positions, phase_of_name[table.name[events.rows[mark[positions]]]], Evidence.MARK)
    on_autograd_thread = np.isin(events.thread, _autograd_threads(events, nodes))
    phases.put(on_autograd_thread & (phases.phase == NONE), BACKWARD, Evidence.NODE)
    _put_transfers(table, events, phases, copies)
    if not has_phase_marks:
        windows = _forward_windows(table, events, nodes, steps)
        for mask, phase in ((windows.backward, BACKWARD), (windows.loss, LOSS), (windows.forward, FORWARD)):
            phases.put(mask & (phases.phase == NONE), phase, Evidence.WINDOW)
        _put_user_phases(table, events, phases)
    _put_remaining(table, events, phases, steps)
    return phases


def _double_backward(events: HostEvents, nodes: Nodes, phases: Phases) -> Ids:
    """Return positions that look recomputed, but belong to a backward pass that creates a graph (`create_graph=True`).

    Recomputed work of a checkpoint is consumed inside the same node, or not at all. The graph of a derivative runs after
    that node.
    """
    joined = np.flatnonzero(nodes.exact & (events.node[nodes.forward] != NONE))
    creator_node = events.outer_node[nodes.forward[joined]]
    running_node = events.outer_node[nodes.positions[joined]]
    outlived = np.unique(creator_node[creator_node != running_node])
    recomputed = np.flatnonzero((phases.phase == RECOMPUTE) & (events.module < events.node)).astype(np.int32)
    return recomputed[np.isin(events.outer_node[recomputed], outlived)]


def _autograd_threads(events: HostEvents, nodes: Nodes) -> Ids:
    """Return threads that run nodes and no other part of a step. Launches there between nodes belong to backward too."""
    threads = np.unique(events.thread[nodes.positions])
    forward = nodes.forward[nodes.forward != NONE]
    marked = np.flatnonzero(np.isin(events.role, (Role.PHASE, Role.OPTIMIZER, Role.DATA, Role.FORWARD, Role.STEP)))
    others = np.concatenate((forward, marked))
    return np.setdiff1d(threads, events.thread[others[events.node[others] == NONE]]).astype(np.int32)


def _put_transfers(table: Table, events: HostEvents, phases: Phases, copies: Ids) -> None:
    """Set phase transfer for the launches `copies` and their data-moving operators, if they have no phase yet."""
    copies = copies[phases.phase[copies] == NONE]
    if not len(copies):
        return
    phases.put(copies, TRANSFER, Evidence.COPY)
    outer = np.unique(events.outer_operator[copies])
    outer = outer[(outer != NONE) & (phases.phase[outer] == NONE)]
    outer = outer[table.named(events.rows[outer], _COPY_OPERATOR)]
    phases.put(_inside(events, outer) & (phases.phase == NONE), TRANSFER, Evidence.COPY)


def _inside(events: HostEvents, roots: Ids) -> Mask:
    """Return which events are one of `roots` (outermost operators) or lie inside one."""
    is_root = np.zeros(len(events.rows) + 1, dtype=np.bool_)  # the last entry is for NONE
    is_root[roots] = True
    return is_root[events.outer_operator]


def _put_user_phases(table: Table, events: HostEvents, phases: Phases) -> None:
    """Set the phase of what nothing else attributes and a range of the user's encloses, by the name of the range."""
    inside = np.flatnonzero((events.user_phase != NONE) & (phases.phase == NONE))
    name = table.name[events.rows[events.user_phase[inside]]]
    names, index = np.unique(name, return_inverse=True)
    stated = [user_phase(table.names[number]) for number in names.tolist()]
    numbers = np.array([NONE if phase is None else PHASE_NUMBERS[phase] for phase in stated], dtype=np.int8)
    if len(inside):
        phases.put(inside, numbers[index], Evidence.USER_MARK)


def _put_remaining(table: Table, events: HostEvents, phases: Phases, steps: Steps) -> None:
    """Set the phase of the remaining work: forward inside a step of an inference trace, else other.

    Python calls keep none.
    """
    kind = table.kind[events.rows]
    work = ((kind == Kind.OPERATOR) | (kind == Kind.RUNTIME)) & ~np.isin(events.role, (Role.STEP, Role.PHASE))
    work &= phases.phase == NONE
    if not events.has(Role.NODE, Role.OPTIMIZER, Role.BACKWARD, Role.PHASE):
        phases.put(work & (steps.at(events.start_ns) != NONE), FORWARD, Evidence.WINDOW)
    phases.put(work & (phases.phase == NONE), OTHER, Evidence.NONE)


# ---- forward passes without module calls: from the first operator that backward uses to the first backward node


class _Windows(NamedTuple):
    """Masks over positions.

    `forward`: in a forward pass. `loss`: after its last operator, reading the loss. `backward`: after it, creating
    backward's first gradient.
    """

    forward: Mask
    loss: Mask
    backward: Mask


class _ForwardPasses(NamedTuple):
    """Forward passes on one thread.

    `last_op_end_ns`: the end of the last operator that backward uses. `node_start_ns`: the first backward node after
    the pass, or the largest integer. `ends_with_loss`: the last operator is the loss's.
    """

    start_ns: Ints
    last_op_end_ns: Ints
    end_ns: Ints
    node_start_ns: Ints
    ends_with_loss: Mask


def _forward_windows(table: Table, events: HostEvents, nodes: Nodes, steps: Steps) -> _Windows:
    """Return the forward passes of a trace without module calls.

    A pass extends from one operator that backward uses to the next, as long as nothing else comes between them on
    their thread: no node created by this thread's operators, no step border, no optimizer, DataLoader or call of
    backward. After its last such operator the pass extends to the first node, or to a collective. A collective
    belongs to other work, such as the next batch or a metric.
    """
    count = len(events.rows)
    windows = _Windows(*(np.zeros(count, dtype=bool) for _ in range(3)))
    used = np.unique(nodes.forward[nodes.exact])
    used = used[(events.node[used] == NONE) & (events.mark[used] == NONE)]
    if not len(used):
        return windows
    forward_thread = np.where(nodes.forward != NONE, events.thread[nodes.forward], NONE)
    borders = np.flatnonzero(np.isin(events.role, (Role.OPTIMIZER, Role.DATA, Role.BACKWARD, Role.COLLECTIVE)))
    roots = np.flatnonzero(events.outer_operator == np.arange(count)).astype(np.int32)
    bounds = np.searchsorted(events.thread, np.arange(int(events.thread.max()) + 2))
    for thread in np.unique(events.thread[used]).tolist():
        thread_slice = slice(int(bounds[thread]), int(bounds[thread + 1]))
        node_starts = np.sort(events.start_ns[nodes.positions[forward_thread == thread]])
        thread_borders = borders[events.thread[borders] == thread]
        passes = _forward_passes(events, used[events.thread[used] == thread], node_starts, thread_borders, steps)
        times = events.start_ns[thread_slice]
        # events that outlast the pass enclose it and the work after it: a range around the loop, a call of its function
        pass_end = passes.end_ns[np.maximum(np.searchsorted(passes.start_ns, times, side="right") - 1, 0)]
        windows.forward[thread_slice] = _covered(times, passes.start_ns, passes.end_ns) & (
            events.end_ns[thread_slice] <= pass_end
        )
        _split_after_last_op(table, events, roots[events.thread[roots] == thread], passes, windows)
    return windows


def _forward_passes(events: HostEvents, used: Ids, node_starts: Ints, marks: Ints, steps: Steps) -> _ForwardPasses:
    """Return the passes of the operators `used` on one thread.

    `node_starts`: starts of their nodes. `marks`: marks and collectives.
    """
    collective = events.role[marks] == Role.COLLECTIVE
    borders = np.concatenate((node_starts, events.start_ns[marks[~collective]], steps.start_ns, steps.end_ns))
    borders = np.unique(borders)
    root = np.where(events.outer_operator[used] == NONE, used, events.outer_operator[used])
    starts, ends = events.start_ns[root], events.end_ns[root]
    section = np.searchsorted(borders, events.start_ns[used], side="right")
    first = np.flatnonzero(np.concatenate(([True], section[1:] != section[:-1])))
    last = np.append(first[1:], len(used)) - 1
    pass_start, last_op_end = starts[first], np.maximum.reduceat(ends, first)
    node_start = np.append(node_starts, _FOREVER)[np.searchsorted(node_starts, last_op_end)]
    next_border = np.append(borders, _FOREVER)[section[first]]
    collective_starts = np.append(np.sort(events.start_ns[marks[collective]]), _FOREVER)
    pass_end = np.minimum(next_border, collective_starts[np.searchsorted(collective_starts[:-1], last_op_end)])
    pass_end = np.where(next_border == node_start, np.maximum(pass_end, last_op_end), last_op_end)
    return _ForwardPasses(
        pass_start,
        last_op_end,
        pass_end,
        np.where(next_border == node_start, node_start, _FOREVER),
        events.loss[used[last]] != NONE,
    )


def _covered(times: Ints, starts: Ints, ends: Ints) -> Mask:
    """Return which of the ascending `times` lie in one of the intervals."""
    change = np.zeros(len(times) + 1, dtype=np.int32)
    np.add.at(change, np.searchsorted(times, starts), 1)
    np.add.at(change, np.searchsorted(times, ends), -1)
    return np.cumsum(change[:-1]) > 0


def _split_after_last_op(
    table: Table, events: HostEvents, roots: Ids, passes: _ForwardPasses, windows: _Windows
) -> None:
    """Mark reading the loss and creating backward's first gradient in `windows`. `roots` are on the thread of `passes`."""
    start_ns = events.start_ns[roots]
    pass_index = np.searchsorted(passes.last_op_end_ns, start_ns, side="right") - 1
    after = (pass_index >= 0) & (start_ns < passes.node_start_ns[np.maximum(pass_index, 0)])
    # The first gradient is the thread's last work before the first node.
    following = np.append(start_ns[1:], _FOREVER)
    is_seed = (
        table.named(events.rows[roots], _GRADIENT_SEED)
        & after
        & (following >= passes.node_start_ns[np.maximum(pass_index, 0)])
    )
    is_read = table.named(events.rows[roots], _READ_SCALAR) & after
    is_read &= (start_ns < passes.end_ns[np.maximum(pass_index, 0)]) & passes.ends_with_loss[np.maximum(pass_index, 0)]
    windows.backward[:] |= _inside(events, roots[is_seed])
    windows.loss[:] |= _inside(events, roots[is_read])
