"""A step as a graph: work of host threads and of device streams, and the order that binds them.

A node is a stretch of work on one lane. It starts when all nodes that it depends on have ended (plus the delay of each edge), and
lasts as long as its duration. Nodes are numbered so that each edge leads from a lower to a higher number. The graph
holds no events of a trace: a trace, a forecast or a test by hand can make one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Ids = NDArray[np.int32]
Bytes = NDArray[np.int8]
Mask = NDArray[np.bool_]
NONE: Final = -1
EDGES: Final = ("source", "target", "delay_ns", "link")  # the columns of edges
NEVER_NS: Final = -(1 << 61)  # the earliest start of a node that only its edges hold back


class Link(IntEnum):
    """Why a node starts after another one."""

    SEQUENCE = 0  # the next work of the same host thread
    THREAD = 1  # a host thread waits for another one
    LAUNCH = 2  # device work after the host's call
    STREAM = 3  # the next work of the same stream
    EVENT = 4  # a stream waits for an event of another stream
    WAIT = 5  # the host waits for the device
    QUEUE = 6  # a launch waits for a place in the launch queue
    RANK = 7  # a collective waits for another rank


class Item(IntEnum):
    """Events that the profiler recorded during host work. Each adds to the duration."""

    OPERATOR = 0
    FRAME = 1  # a Python call
    RANGE = 2  # an annotation
    CALL = 3  # a call of the runtime


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Graph:
    """Nodes and edges, as columns.

    Nodes: `lane` is a host thread or a stream. `is_device`: device work, which `launch` (a node, or NONE) launched.
    `ready_ns`: the earliest start; NEVER_NS if only edges hold the node back. `own_ns`: the part of a host node's
    duration that belongs to its launch alone, and goes if the launch goes. `step`: the number of the step, from 0; NONE
    before, between and after steps.
    `items[item, node]`: the recorded events of each `Item`. `waiting_ns`: the part of a collective's duration in which
    it waits for other ranks.

    Edges, by target: `source`, `target`, `delay_ns` (negative if the target may start before the source has ended),
    `link`.
    """

    lane: Ids
    is_device: Mask
    duration_ns: Ints
    ready_ns: Ints
    launch: Ids
    own_ns: Ints
    step: Ids
    items: Ints
    waiting_ns: Ints
    source: Ids
    target: Ids
    delay_ns: Ints
    link: Bytes

    def __post_init__(self) -> None:
        """Raise ValueError if an edge does not lead to a higher number, or edges are not ordered by target."""
        if (self.source >= self.target).any() or (np.diff(self.target) < 0).any() or (self.source < 0).any():
            raise ValueError("each edge leads from a lower to a higher node, and edges are ordered by target")

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.duration_ns)

    @property
    def steps(self) -> int:
        """The number of steps."""
        return int(self.step.max(initial=NONE)) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a graph that is made by hand; the columns of `Graph` explain the fields. `after`: (node, delay, link)."""

    lane: int
    duration_ns: int
    is_device: bool = False
    after: tuple[tuple[int, int, Link], ...] = ()
    launch: int = NONE
    own_ns: int = 0
    step: int = 0
    items: tuple[int, int, int, int] = (0, 0, 0, 0)
    ready_ns: int = 0
    waiting_ns: int = 0


def graph_of(nodes: Iterable[Node]) -> Graph:
    """Return the graph of `nodes`, which are numbered in order."""
    rows = tuple(nodes)
    edges = [(source, target, delay, link) for target, node in enumerate(rows) for source, delay, link in node.after]

    def column(name: str, dtype: Any) -> NDArray[Any]:
        return np.array([getattr(node, name) for node in rows], dtype)

    source, target, delay_ns, link = (
        np.array([edge[i] for edge in edges], dtype) for i, dtype in enumerate((np.int32, np.int32, np.int64, np.int8))
    )
    return Graph(
        lane=column("lane", np.int32),
        is_device=column("is_device", np.bool_),
        duration_ns=column("duration_ns", np.int64),
        ready_ns=column("ready_ns", np.int64),
        launch=column("launch", np.int32),
        own_ns=column("own_ns", np.int64),
        step=column("step", np.int32),
        items=column("items", np.int64).reshape(len(rows), len(Item)).T,
        waiting_ns=column("waiting_ns", np.int64),
        source=source,
        target=target,
        delay_ns=delay_ns,
        link=link,
    )


def selected(graph: Graph, kept: Ids | Ints) -> Graph:
    """Return the nodes `kept`, which are in order, and the edges between them."""
    number = np.full(len(graph) + 1, NONE, np.int32)
    number[kept] = np.arange(len(kept))
    inside = (number[graph.source] != NONE) & (number[graph.target] != NONE)
    nodes = ("lane", "is_device", "duration_ns", "ready_ns", "own_ns", "step", "waiting_ns")
    return Graph(
        **{name: getattr(graph, name)[kept] for name in nodes},
        launch=number[graph.launch[kept]],
        items=graph.items[:, kept],
        source=number[graph.source[inside]],
        target=number[graph.target[inside]],
        delay_ns=graph.delay_ns[inside],
        link=graph.link[inside],
    )
