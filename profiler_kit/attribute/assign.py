"""Whose a piece of work is: the step, phase and path behind a host frame, from the marks and joins above it.

A kernel's owner is its launch's owner. The rules, first match wins:

1. inside an autograd node: forward work done again is ``recompute`` of the module called there, the rest is ``backward``
   of the module whose forward op made the node. A node that accumulates a gradient follows the node before it; one whose
   forward op is not to be found is the root's;
2. inside a phase mark: that phase; its path is the module's in ``forward``, a pseudo path elsewhere. What ``backward``
   launches outside every node (the seed gradient) is the loss's;
3. on the autograd engine's own thread (nodes, but no phase marks), outside all nodes: ``backward`` of the node before;
4. inside a module on a thread without phase marks (a replica's): ``forward`` of that module;
5. else nobody's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple, cast

from profiler_kit.attribute.correlate import Frame, Links
from profiler_kit.attribute.events import HostKind, Thread
from profiler_kit.records import marks
from profiler_kit.records.counts import DATA_PATH, LOSS_PATH, OPTIMIZER_PATH, PHASES, PSEUDO_PATHS, TRANSFER_PATH, Phase
from profiler_kit.records.paths import enclosing, parent

PHASE_PATHS: Final[dict[str, str]] = {
    "data": DATA_PATH,
    "transfer": TRANSFER_PATH,
    "loss": LOSS_PATH,
    "optimizer": OPTIMIZER_PATH,
}


class Owner(NamedTuple):
    """Who some work belongs to."""

    phase: Phase
    path: str


class Assignment:
    """Owners of the frames of one trace."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._called = {
            frame.module for frames in links.threads.values() for frame in frames if frame.module is not None
        }
        self._marked = {
            thread for thread, frames in links.threads.items() if any(frame.phase is not None for frame in frames)
        }
        self._nodes_of = {
            thread: nodes
            for thread, frames in links.threads.items()
            if (nodes := [frame for frame in frames if frame.event.is_node])
        }
        self._node_path: dict[Frame, str] = {}
        self._redone_path: dict[Frame, str] = {}
        self._join_paths()

    def works_here(self, thread: Thread) -> bool:
        """Whether `thread` takes part in the steps: it has marks of ours or runs autograd nodes."""
        if thread in self._nodes_of or thread in self._marked:
            return True
        return any(frame.module is not None for frame in self._links.threads[thread])

    def step(self, frame: Frame) -> int | None:
        """The traced step in which `frame` began, or None outside of all."""
        return frame.step if frame.step is not None else self._links.step_at(frame.event.start_ns)

    def owner(self, frame: Frame) -> Owner | None:
        """Whose the work done or launched in `frame` is, or None where nothing above it says so."""
        if frame.node is not None:
            if frame.redone:
                return Owner("recompute", self._path_redone(frame))
            return Owner("backward", self._node_path[frame.node])
        if frame.phase is not None:
            if frame.phase == "backward":
                return Owner("backward", self._path_before(frame))
            if frame.phase == "forward":
                return Owner("forward", frame.module or "")
            path = PHASE_PATHS.get(frame.phase, frame.module)
            return Owner(frame.phase, path) if path is not None and frame.phase in PHASES else None
        if frame.event.thread in self._nodes_of and frame.event.thread not in self._marked:
            return Owner("backward", self._path_before(frame))
        if frame.module is not None:
            return Owner("forward", frame.module)
        return None

    def redoer(self, frame: Frame) -> Owner:
        """Whose the time around redone forward work is: of `frame`, a module's mark inside a node, or the node itself."""
        return Owner("recompute", self._path_redone(frame))

    def _join_paths(self) -> None:
        """Finds every node's path, in order of start: a forward op redone inside a node comes after that node."""
        before: dict[tuple[Thread, Frame | None], str] = {}
        for node in sorted((n for nodes in self._nodes_of.values() for n in nodes), key=lambda n: n.event.start_ns):
            op = self._links.forward_of.get(node)
            siblings = (node.event.thread, node.parent)
            outer = node.parent.node if node.parent is not None else None
            if op is not None and not node.event.accumulates:
                path = self._path_forward(op)
            elif node.event.sequence is not None and not node.event.accumulates:
                path = self._node_path[outer] if outer is not None else ""
            elif siblings in before:
                path = before[siblings]
            else:
                path = self._node_path[outer] if outer is not None else LOSS_PATH
            self._node_path[node] = before[siblings] = path

    def _path_forward(self, op: Frame) -> str:
        if op.node is not None:
            return self._path_redone(op) if op.redone else self._node_path[op.node]
        if op.phase is not None and op.phase in PHASE_PATHS:
            return PHASE_PATHS[op.phase]
        return op.module or ""

    def _path_before(self, frame: Frame) -> str:
        """The path of the last node on `frame`'s thread that began before it in the same step, or else the loss's."""
        nodes = self._nodes_of.get(frame.event.thread, [])
        at = bisect_right(nodes, frame.event.start_ns, key=lambda node: node.event.start_ns) - 1
        if at < 0 or self.step(nodes[at]) != self.step(frame):
            return LOSS_PATH
        return self._node_path[nodes[at]]

    def _path_redone(self, frame: Frame) -> str:
        """The module of forward work done again inside a node.

        Work outside every module called in there was done by the one that asked for the checkpoint: the nearest that
        encloses both the node's module and all modules called there.
        """
        if frame.redone_module is not None:
            return frame.redone_module
        node = cast(Frame, frame.node)
        if node not in self._redone_path:
            inner = [parent(path) for path in _outermost_modules(node)]
            own = self._node_path[node]
            if inner and own not in PSEUDO_PATHS:
                inner.append(own)
            self._redone_path[node] = enclosing(inner, self._called) if inner else own
        return self._redone_path[node]


def _outermost_modules(node: Frame) -> Iterator[str]:
    """Paths of the modules called in `node` and in no module or node inside it."""
    waiting = list(node.children)
    while waiting:
        frame = waiting.pop()
        if frame.event.is_node:
            continue
        if frame.event.kind is HostKind.ANNOTATION and frame.event.name.startswith(marks.MODULE):
            yield frame.event.name.removeprefix(marks.MODULE)
            continue
        waiting.extend(frame.children)
