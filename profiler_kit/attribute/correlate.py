"""Joins: every host event to what encloses it, every launch to its kernels, every backward node to its forward op.

Kernels run asynchronously, so nothing here looks at when a kernel ran: who it belongs to is decided by the host stack
at its launch. Autograd nodes run on another host thread on CUDA (and on the calling one on a CPU), where no mark of the
forward pass encloses them: they are joined to the forward op that made them by autograd's sequence number, which counts
per thread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from profiler_kit.attribute.events import HostEvent, HostKind, Thread, Trace
from profiler_kit.records import marks
from profiler_kit.traces.names import TORCHSCRIPT, node_agrees


@dataclass(slots=True, eq=False)
class Frame:
    """A host event and what encloses it. Inherited facts are those of the innermost enclosing event, itself included.

    `step` and `phase` come from marks; `module` is the innermost module mark; `node` the innermost autograd node; `op` the
    innermost operator. `redone` is true for forward work done again inside a node (activation checkpointing): a module
    called there, or an operator that makes autograd nodes itself. `redone_module` is the module mark inside the node.
    """

    event: HostEvent
    parent: Frame | None
    step: int | None = None
    phase: str | None = None
    module: str | None = None
    node: Frame | None = None
    op: Frame | None = None
    redone: bool = False
    redone_module: str | None = None
    children: list[Frame] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Links:
    """The joins of one trace. Frames of a thread are in order of their start, enclosing before enclosed."""

    threads: Mapping[Thread, Sequence[Frame]]
    launches: Mapping[int, Frame]
    steps: Sequence[Frame]
    forward_of: Mapping[Frame, Frame]

    def step_at(self, instant_ns: int) -> int | None:
        """The step whose mark covers `instant_ns` on any thread, or None between steps."""
        mark = self._mark_at(instant_ns)
        return mark.step if mark is not None else None

    def step_began_ns(self, instant_ns: int) -> int:
        """When the step that covers `instant_ns` began; between steps the beginning of time."""
        mark = self._mark_at(instant_ns)
        return mark.event.start_ns if mark is not None else 0

    def _mark_at(self, instant_ns: int) -> Frame | None:
        at = bisect_right(self.steps, instant_ns, key=lambda frame: frame.event.start_ns) - 1
        return self.steps[at] if at >= 0 and instant_ns < self.steps[at].event.end_ns else None


def correlate(trace: Trace) -> Links:
    """All joins of `trace`."""
    by_thread: dict[Thread, list[HostEvent]] = defaultdict(list)
    for event in trace.host:
        by_thread[event.thread].append(event)
    threads = {thread: _stack(events) for thread, events in by_thread.items()}
    launches: dict[int, Frame] = {}
    steps: list[Frame] = []
    for frames in threads.values():
        for frame in frames:
            correlation = frame.event.correlation
            if correlation is not None:
                launches.setdefault(correlation, frame)  # an outer runtime call before the driver call it makes
            elif (
                frame.event.kind is HostKind.ANNOTATION
                and frame.event.name.startswith(marks.STEP)
                and frame.step is not None
            ):
                steps.append(frame)
    steps.sort(key=lambda frame: frame.event.start_ns)
    links = Links(threads=threads, launches=launches, steps=steps, forward_of={})
    return replace(links, forward_of=_join_nodes(links))


def _stack(events: Iterable[HostEvent]) -> list[Frame]:
    """Frames of one thread's `events`, which come by start, enclosing before enclosed."""
    frames: list[Frame] = []
    stack: list[Frame] = []
    for event in events:
        while stack and stack[-1].event.end_ns <= event.start_ns:
            stack.pop()
        frame = _frame(event, stack[-1] if stack else None)
        if frame.parent is not None:
            frame.parent.children.append(frame)
        frames.append(frame)
        if event.kind is not HostKind.RUNTIME:
            # Runtime calls are stamped by another clock and may seem to outlast their operator: they enclose nothing.
            stack.append(frame)
    return frames


def _frame(event: HostEvent, parent: Frame | None) -> Frame:
    frame = Frame(event, parent)
    if parent is not None:
        frame.step, frame.phase, frame.module = parent.step, parent.phase, parent.module
        frame.node, frame.op = parent.node, parent.op
        frame.redone, frame.redone_module = parent.redone, parent.redone_module
    if event.kind is HostKind.ANNOTATION:
        _read_mark(event.name, frame)
    elif event.kind is HostKind.OPERATOR:
        frame.op = frame
        if event.is_node:
            # A node inside recomputed forward work is a nested backward pass: its own joins hold, not the outer ones.
            frame.node, frame.redone, frame.redone_module = frame, False, None
        elif frame.node is not None and event.sequence is not None:
            frame.redone = True  # autograd runs its nodes with gradients off; only forward work carries a number
    return frame


def _read_mark(name: str, frame: Frame) -> None:
    if name.startswith(marks.STEP):
        number = name.removeprefix(marks.STEP)
        frame.step = int(number) if number.isdecimal() else None
    elif name.startswith(marks.PHASE):
        frame.phase = name.removeprefix(marks.PHASE)
    elif name.startswith(marks.MODULE):
        frame.module = name.removeprefix(marks.MODULE)
        if frame.node is not None:
            frame.redone, frame.redone_module = True, frame.module


# ---- forward op <-> backward node


@dataclass(slots=True)
class _ThreadOps:
    """Forward ops of one thread by sequence number, each list by start.

    Every question is asked of a stretch of time, from the node's step's beginning to the node's own: a graph is made and
    used up in one step, and a number that no op of this step carries may be one that an op of the step before carried last.
    """

    by_number: dict[int, list[Frame]] = field(default_factory=lambda: defaultdict(list))
    numbers: list[int] = field(default_factory=list)

    def latest(self, number: int, since_ns: int, before_ns: int) -> Frame | None:
        """The latest-started op numbered `number` of that stretch.

        The number is that of the node to be made next, so ops that make none carry it too, before the one that does.
        """
        ops = self.by_number.get(number, ())
        at = bisect_left(ops, before_ns, key=lambda frame: frame.event.start_ns) - 1
        return ops[at] if at >= 0 and ops[at].event.start_ns >= since_ns else None

    def nearest(self, number: int, since_ns: int, before_ns: int) -> Frame | None:
        """As `latest`, or else the op with the nearest lower number: one op may make several nodes and carries the first's."""
        exact = self.latest(number, since_ns, before_ns)
        if exact is not None:
            return exact
        at = bisect_left(self.numbers, number) - 1
        return self.latest(self.numbers[at], since_ns, before_ns) if at >= 0 else None

    def following(self, number: int, since_ns: int, before_ns: int) -> Frame | None:
        """The earliest-started op of that stretch that carries the number after `number`."""
        ops = self.by_number.get(number + 1, ())
        at = bisect_left(ops, since_ns, key=lambda frame: frame.event.start_ns)
        return ops[at] if at < len(ops) and ops[at].event.start_ns < before_ns else None


def _join_nodes(links: Links) -> dict[Frame, Frame]:
    ops: dict[Thread, _ThreadOps] = {}
    nodes: list[Frame] = []
    for thread, frames in links.threads.items():
        for frame in frames:
            event = frame.event
            if event.is_node:
                if event.sequence is not None:
                    nodes.append(frame)
            elif event.sequence is not None and event.kind is HostKind.OPERATOR:
                ops.setdefault(thread, _ThreadOps()).by_number[event.sequence].append(frame)
    for of_thread in ops.values():
        of_thread.numbers = sorted(of_thread.by_number)
    since_ns = {node: links.step_began_ns(node.event.start_ns) for node in nodes}
    thread_of = _forward_threads(since_ns, ops)
    joined: dict[Frame, Frame] = {}
    for node, began_ns in since_ns.items():
        number, before_ns = node.event.sequence or 0, node.event.start_ns
        of_node = ops.get(thread_of[node.event.forward_thread]) if node.event.forward_thread in thread_of else None
        if of_node is None:
            continue
        if TORCHSCRIPT in node.event.name:
            op = of_node.following(number, began_ns, before_ns)
        else:
            op = of_node.nearest(number, began_ns, before_ns)
        if op is not None:
            joined[node] = op
    return joined


def _forward_threads(nodes: Mapping[Frame, int], ops: Mapping[Thread, _ThreadOps]) -> dict[int, Thread]:
    """The thread behind each of the profiler's own thread numbers, found by vote of the `nodes` (with their step's begin).

    A node votes for the threads that have an op of its number, and counts ten times where the names agree (``aten::mul``,
    ``MulBackward0``): with a reentrant checkpoint the autograd thread makes nodes too, numbered from its own start.
    """
    votes: dict[int, Counter[Thread]] = defaultdict(Counter)
    for node, since_ns in nodes.items():
        for thread, of_thread in ops.items():
            op = of_thread.latest(node.event.sequence or 0, since_ns, node.event.start_ns)
            if op is not None:
                votes[node.event.forward_thread][thread] += 10 if node_agrees(node.event.name, op.event.name) else 1
    return {number: counted.most_common(1)[0][0] for number, counted in votes.items()}
