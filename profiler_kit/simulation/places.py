"""The places of a program in the graph of its steps: what they launch, wait for and do on the host, and what of it has to stay.

In a training step, work without a backward pass may go as a whole: a step computes gradients without it. Work with a backward
pass, and all work of a program that trains nothing, has to be done. Its products stay as they are, and other work that is
launched in a row takes one launch, as long as the longest of them: one larger or fused operation can do it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import outermost_enclosing
from profiler_kit.attribution.launch_sites import Site, launch_sites
from profiler_kit.attribution.operator_loops import MAX_PERIOD, Loops, operator_loops
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution
from profiler_kit.records.counts import PSEUDO_PATHS
from profiler_kit.simulation.cpu_work import cpu_work
from profiler_kit.simulation.from_trace import TraceGraph
from profiler_kit.simulation.graph import Bytes, Graph, Ids, Ints, Mask
from profiler_kit.simulation.host_pieces import HostPieces, host_pieces
from profiler_kit.simulation.parallel_rounds import parallel_loops
from profiler_kit.simulation.repeated_work import CAN_JOIN, NEEDS_LAUNCHES, REPEATED, repeated_work
from profiler_kit.traces.names import accumulates
from profiler_kit.traces.table import NONE

SITE_FIELDS: Final[Mapping[str, str]] = {
    "function": "source",
    "operator": "operator",
    "phase": "phase",
    "call": "call",
}  # the fields of a site by which work is grouped
_COMPUTING_PHASES: Final = (
    "forward",
    "loss",
    "other",
)  # the others prepare data, communicate, and use or compute gradients
CPU: Final = "cpu"  # the place of all work on the CPU
MIN_ROW: Final = 3  # launches; two operations between the products of a network are its activations and its sums


class Place(NamedTuple):
    """A place as masks of nodes: all of its `nodes`, and of these the device work that is `gone`.

    `left_ns`: the time that is left of device work that goes. `host_ns`: the time of the traced host work that goes.
    `keeps_launches`: the device work gets shorter, and the host does all that it did.
    """

    nodes: Mask
    gone: Mask
    left_ns: Ints
    host_ns: Ints
    keeps_launches: bool = False


class Grouping(NamedTuple):
    """The number of the group of each node and of each piece of host work, or NONE.

    `names`: of the groups; "" is no place. `rounds`: of loops and rows, how often a step has each of them.
    """

    names: Sequence[str]
    node: Ids
    piece: Ids
    rounds: Sequence[float] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """The places of the steps of a trace.

    `sites`: of launches and host work. `step_functions`: functions that are the step itself. `site`: the number of each node's
    site. `trains`: a step has a backward pass. `stays`: device work that no change may take out. `joins`: device work that may
    share a launch with that beside it. `is_product`: device work that is a product. `is_first`, `is_first_piece`: nodes and
    pieces in the first round of a loop. `piece_site`, `piece_phase`: the site and the phase of each piece of host work.
    """

    graph: Graph
    sites: tuple[Site, ...]
    step_functions: frozenset[str]
    site: Ids
    piece_site: Ids
    trains: bool
    stays: Mask
    joins: Mask
    is_product: Mask
    groupings: Mapping[str, Grouping]
    pieces: HostPieces
    piece_phase: Bytes
    is_first: Mask
    is_first_piece: Mask

    def place(self, kind: str, name: str) -> Place:
        """Return the place of a kind and a name; an empty one if there is none."""
        grouping = self.groupings[kind]
        wanted = np.array([*(group == name for group in grouping.names), False])
        nodes, piece = wanted[grouping.node], wanted[grouping.piece]
        kept = self._kept(kind, nodes)
        is_kept_launch = np.zeros(len(self.graph) + 1, np.bool_)
        is_kept_launch[self.graph.launch[kept]] = True
        piece &= ~(self.is_first_piece if kind == "loop" else is_kept_launch[self.pieces.node])
        gone, duration = nodes & self.graph.is_device & ~kept, self.graph.duration_ns
        host_ns = np.bincount(self.pieces.node[piece], self.pieces.ns[piece], minlength=len(self.graph))
        left_ns = np.zeros(len(self.graph), np.int64)
        if (
            kind == "loop" or name in CAN_JOIN
        ):  # one operation for all rounds still does their work, but without the least time of a kernel
            left_ns[gone] = duration[gone] - duration[gone].min(initial=np.iinfo(np.int64).max)
        if kind == "repeated" and name in NEEDS_LAUNCHES:
            left_ns[gone] = duration[gone].min(initial=np.iinfo(np.int64).max)
            return Place(nodes, gone, left_ns, np.zeros_like(left_ns), keeps_launches=True)
        return Place(nodes, gone, left_ns, host_ns.astype(np.int64))

    def _kept(self, kind: str, nodes: Mask) -> Mask:
        """Return which device work of a place stays: the first round of a loop, nothing of what is in vain, or what has to."""
        if kind in ("loop", "repeated", "core", CPU):
            stays = {"loop": self.is_first, "core": self.is_product}.get(kind, np.bool_(False))
            return nodes & self.graph.is_device & stays
        return self._needed(nodes)

    def _needed(self, nodes: Mask) -> Mask:
        """Return which device work has to stay, with the longest of each row of work that can share a launch."""
        device = np.flatnonzero(self.graph.is_device)  # in the order of their launches
        joins = (nodes & self.joins)[device]
        row = np.cumsum(~joins)[joins]
        members = device[joins]
        order = np.lexsort((-self.graph.duration_ns[members], row))
        _, first, length = np.unique(row[order], return_index=True, return_counts=True)
        kept = nodes & self.stays
        kept[members[order][first]] = True
        kept[members[order][np.repeat(length < MIN_ROW, length)]] = True
        return kept


def places_of(attribution: Attribution, trace: TraceGraph, is_product: Mask) -> Places:
    """Return the places of `trace`. `is_product`: which device nodes are products."""
    graph, device = trace.graph, attribution.device
    launch = np.append(device.launch, np.int32(NONE))[np.where(graph.is_device, trace.event, NONE)]
    node_event = np.where(graph.is_device, launch, trace.event).astype(np.int32)
    pieces = host_pieces(attribution, trace)
    sites = launch_sites(attribution, np.concatenate((node_event, pieces.event)), launch[graph.is_device])
    site, piece_site = np.split(sites.number, [len(graph)])
    begin, end = (
        int(times) + trace.origin_ns for times in (trace.begin_ns.min(initial=0), trace.end_ns.max(initial=0))
    )
    loops = _repeating(attribution, operator_loops(attribution, begin, end), node_event, is_product)
    numbers = np.append(loops.number, np.int32(NONE))
    is_first = np.append(loops.is_first, False)
    trains = any(item.has_backward for item in sites.sites)
    has_backward = np.array([*(item.has_backward for item in sites.sites), True])[site]
    stays = graph.is_device & (has_backward if trains else True)
    groupings: dict[str, Grouping] = {
        kind: Grouping([getattr(item, field) for item in sites.sites], site, piece_site)
        for kind, field in SITE_FIELDS.items()
    }
    groupings["gradient"] = Grouping(
        ["none" if trains and _is_apart(item) else "" for item in sites.sites], site, piece_site
    )
    groupings["row"], groupings["core"] = _rows(
        attribution, launch[graph.is_device], node_event, pieces.event, is_product
    )
    repeated = repeated_work(attribution, launch[graph.is_device], trains=trains)
    groupings["repeated"] = Grouping(REPEATED, repeated[node_event], repeated[pieces.event])
    of_cpu = (np.where(mask, np.int32(0), np.int32(NONE)) for mask in cpu_work(attribution, trace, pieces))
    groupings["cpu"] = Grouping((CPU,), *of_cpu)
    groupings["module"] = _modules(attribution, trace, node_event, pieces.event)
    groupings["loop"] = Grouping(
        [loop_name(loop.operators) for loop in loops.loops],
        numbers[node_event],
        numbers[pieces.event],
        [loop.rounds for loop in loops.loops],
    )
    return Places(
        graph=graph,
        sites=sites.sites,
        step_functions=sites.loops,
        site=site,
        piece_site=piece_site,
        trains=trains,
        stays=stays & is_product,
        joins=stays & ~is_product,
        is_product=is_product,
        groupings=groupings,
        pieces=pieces,
        piece_phase=np.append(attribution.host.phase, np.int8(NONE))[pieces.event],
        is_first=is_first[node_event],
        is_first_piece=is_first[pieces.event],
    )


def _is_apart(site: Site) -> bool:
    """Return whether the gradients of a step do not need the work of a site: it has no backward pass and no own purpose."""
    return not site.has_backward and site.operator != "" and site.phase in _COMPUTING_PHASES


def loop_name(operators: Sequence[str]) -> str:
    """Return the name of a loop or a row of these operators."""
    return ", ".join(operators)


def _modules(attribution: Attribution, trace: TraceGraph, node_event: Ids, piece_event: Ids) -> Grouping:
    """Return the modules. Work of backward belongs to the module of its forward operator, and so does its launch."""
    graph = trace.graph
    is_device, of_host = graph.is_device, np.append(attribution.host.module, np.int32(NONE))
    of_work = np.append(attribution.device.module, np.int32(NONE))[np.where(is_device, trace.event, NONE)]
    node = np.where(is_device, of_work, of_host[node_event])
    launched = np.flatnonzero(is_device & (graph.launch != NONE))
    node[graph.launch[launched]] = of_work[launched]
    # phases have sites of their own
    names = ["" if module.path in PSEUDO_PATHS else module.path for module in attribution.modules]
    return Grouping(names, node, of_host[piece_event])


def _rows(
    attribution: Attribution, launches: Ids, node_event: Ids, piece_event: Ids, is_product: Mask
) -> tuple[Grouping, Grouping]:
    """Return the rows of operators between two products, without and with the products. Equal rows, as of layers, are one place.

    Work of backward belongs to the row of its forward operator.
    """
    host, names = attribution.host, attribution.table.name[attribution.host.rows]
    outermost = np.append(outermost_enclosing(host.parent, host.operator), np.int32(NONE))
    at = np.unique(outermost[launches[(launches != NONE) & (host.node[launches] == NONE)]])
    at = at[(at != NONE) & np.isin(host.phase[at], [PHASE_NUMBERS[phase] for phase in _COMPUTING_PHASES])]
    products = outermost[node_event[is_product & (node_event != NONE)]]
    with_backward = outermost[attribution.node_forward[attribution.node_forward != NONE]]
    rows: defaultdict[tuple[int, ...], list[Ids]] = defaultdict(list)
    around: defaultdict[tuple[int, ...], list[Ids]] = defaultdict(list)
    for row, ends in _between(attribution, at, products):
        if len(with_backward):  # the work after the last operator with a backward pass is a place of its own
            last = np.flatnonzero(np.isin(row, with_backward))
            row = row[: int(last[-1]) + 1 if len(last) else 0]
        rows[tuple(names[row].tolist())].append(row)
        around[tuple(names[row].tolist())].append(ends)
    steps = max(len(np.unique(host.step[at])), 1)
    keys = [key for key in rows if MIN_ROW <= len(key) <= MAX_PERIOD]
    number = np.full((2, len(host.rows) + 1), NONE, np.int32)
    for index, key in enumerate(keys):
        number[:, np.concatenate(rows[key])] = index
        number[1, np.concatenate(around[key])] = index
    forward = np.append(np.where(host.node != NONE, attribution.forward_of(host.node), np.arange(len(host.rows))), NONE)
    texts = [loop_name([attribution.table.names[i] for i in key]) for key in keys]
    rounds = [len(rows[key]) / steps for key in keys]
    without, with_products = (
        Grouping(texts, of[node_event], of[piece_event], rounds) for of in number[:, outermost[forward]]
    )
    return without, with_products


def _between(attribution: Attribution, operators: Ids, products: Ids) -> Iterator[tuple[Ids, Ids]]:
    """Yield the operators between two products of the same thread and step, and the products before and after them."""
    host = attribution.host
    for thread in np.unique(host.thread[operators]).tolist():
        mine = operators[host.thread[operators] == thread]
        is_product = np.isin(mine, products)
        for row in np.split(
            np.arange(len(mine)), np.flatnonzero(is_product | (np.diff(host.step[mine], prepend=NONE) != 0))
        ):
            ends = np.intersect1d(np.append(row[:1], row[-1:] + 1), np.flatnonzero(is_product))
            yield mine[row[~is_product[row]]], mine[ends]


def _repeating(attribution: Attribution, loops: Loops, node_event: Ids, is_product: Mask) -> Loops:
    """Return `loops` without those that may be layers in a row.

    A row of layers has products in each round, and a parameter for each of them: as many gradients as rounds. A loop over time
    steps has few parameters for many rounds, and rounds of heads or experts read the same value (`parallel_loops`). Without
    gradients, nothing tells them apart.
    """
    table, host = attribution.table, attribution.host
    names, counts = np.unique(table.name[host.rows[attribution.nodes]], return_counts=True)
    gradients = sum(int(count) for i, count in zip(names, counts, strict=True) if accumulates(table.names[i]))
    gradients_per_step = gradients / max(len(np.unique(host.step[attribution.nodes])), 1)
    with_products = set(np.append(loops.number, np.int32(NONE))[node_event[is_product]].tolist())
    may_be_layers = [
        index in with_products and not 0 < gradients_per_step < loop.rounds and not is_parallel
        for index, (loop, is_parallel) in enumerate(zip(loops.loops, parallel_loops(attribution, loops), strict=True))
    ]
    number = np.where(np.array([*may_be_layers, True])[loops.number], NONE, loops.number).astype(np.int32)
    rows = (loop._replace(operators=()) if out else loop for loop, out in zip(loops.loops, may_be_layers, strict=True))
    return Loops(tuple(rows), number, loops.is_first)
