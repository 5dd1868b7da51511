"""The result of attribution: the step, phase and module of a trace's events, as columns.

The columns refer to events by position, not by row: position i of `Host` is the event in row `rows[i]` of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler_kit.records.counts import TRACE_PHASES, Phase
from profiler_kit.records.lanes import ROOT_NAME
from profiler_kit.traces.columns import Column, used_texts
from profiler_kit.traces.kernels import classify
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask, Table

PHASE_NUMBERS: Final = {phase: number for number, phase in enumerate(TRACE_PHASES)}


class Evidence(IntEnum):
    """The evidence for the phase of a device event.

    The first kind that applies counts, in the order NAME, MARK, NODE, MODULE, COPY, WINDOW, USER_MARK. Of nested marks, nodes
    and modules, the innermost counts. NONE: the launch lies outside all of these (phase "other"), or the event has
    neither a launch nor a match in another step.
    """

    NONE = 0
    NAME = 1  # the kernel's name is that of a collective
    MARK = 2  # a mark around the launch: of profiler_kit, of the optimizer, of the DataLoader, of a loss
    NODE = 3  # an autograd node, or a launch on autograd's own thread
    MODULE = 4  # a module's or DDP's forward call
    WINDOW = 5  # between the first forward operator that backward uses and the first backward node
    COPY = 6  # a copy from host to device outside marks, nodes and modules, and the operator that makes it
    ALIGNED = 7  # no launch in the trace; the same kernel at the same place of another step has one
    USER_MARK = 8  # inside a range of the user's that is named after a phase


EVIDENCE_NAMES: Final = tuple(evidence.name.lower() for evidence in Evidence)


class Step(NamedTuple):
    """A step: `number` as in ProfilerStep#number, and the start and end of its mark on the host's clock."""

    number: int
    start_ns: int
    end_ns: int


class Module(NamedTuple):
    """The path of a module call: the names of the calls from the outermost down.

    In a trace with marks of profiler_kit, it is a dotted path.
    """

    path: str
    class_name: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Host:
    """The host events by thread, then start, enclosing before enclosed, with their attribution.

    `rows`: rows of the table. `start_ns`, `end_ns`: bounded so that differences do not overflow. `parent`: the
    position of the enclosing event. `operator`, `node`, `python`: positions of the innermost operator, autograd node
    and Python call that encloses the event or is the event. All are NONE if there is none. Runtime calls enclose
    nothing. `phase`: an index of TRACE_PHASES or NONE. `module`: an index of `Attribution.modules` or NONE. `step`:
    an index of `Attribution.steps` or NONE.
    """

    rows: Ids
    start_ns: Ints
    end_ns: Ints
    thread: Ids
    parent: Ids
    operator: Ids
    node: Ids
    python: Ids
    phase: Bytes
    module: Ids
    step: Ids

    @cached_property
    def is_operator(self) -> Mask:
        """Which events are operators. Marks that profilers of 2021 wrote as operators do not count."""
        mask: Mask = self.operator == np.arange(len(self.rows))
        return mask

    def enclosing(self, column: Ids, positions: Ids | Ints) -> Ids:
        """Return the value of `column` at the event that encloses each of `positions`, or NONE."""
        parent = self.parent[positions]
        return np.where(parent != NONE, column[parent], NONE).astype(np.int32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Device:
    """The device work (kernels, copies, fills) by start, then descending duration, then file order.

    `rows`: rows of the table. `start_ns`, `end_ns`: bounded as in `Host`. `launch`: the position of the runtime call
    in `Host`, or NONE if the trace does not hold it. Events of one graph launch share it. `operator`: the position in
    `Host` of the operator around the launch. `phase`, `module`, `step`: as in `Host`.

    An event without a launch may be matched with an event of another step: then `evidence` is ALIGNED, `aligned` is
    that event's position, and phase and module are taken from it. `aligned` is NONE otherwise. The step of an event
    without a launch is always NONE.

    The phase of a collective is "communication", its module is COMMUNICATION_PATH, and `within` is the phase that
    launched it. For all other work, `within` equals `phase`.
    """

    rows: Ids
    start_ns: Ints
    end_ns: Ints
    launch: Ids
    operator: Ids
    phase: Bytes
    within: Bytes
    module: Ids
    step: Ids
    evidence: Bytes
    aligned: Ids

    def selected(self, mask: Mask) -> Device:
        """Return the events of `mask`."""
        columns = {field.name: getattr(self, field.name)[mask] for field in fields(Device)}
        columns["aligned"] = np.full_like(columns["aligned"], NONE)  # they refer to the unfiltered columns
        return Device(**columns)

    @property
    def collective(self) -> Mask:
        """Which events are collectives."""
        mask: Mask = self.phase == PHASE_NUMBERS["communication"]
        return mask


@dataclass(frozen=True, kw_only=True, eq=False)
class Attribution:
    """A trace with the step, phase and module of its events. The columns index `modules` and `steps`.

    `nodes`: positions in `Host` of the autograd nodes. `node_forward`: for each node, the forward operator with the
    node's own number, or NONE. `node_redone`: for each node, the module that requested the forward work recomputed in
    it outside modules called there, or NONE. `graph_launches`: the number of launches with more than one kernel (CUDA
    graphs). `unrecorded_launches`: positions in `Host` of the launches whose work the trace does not hold. `compiled`:
    the trace has regions of torch.compile, whose work has a phase and a region but no module inside it.
    `steps_inferred`: the trace marks no steps, so `steps` come from the optimizer. `notes`: limits of the
    attribution, one per entry.
    """

    table: Table
    host: Host
    device: Device
    modules: tuple[Module, ...]
    steps: tuple[Step, ...]
    nodes: Ids
    node_forward: Ids
    node_redone: Ids
    graph_launches: int
    compiled: bool
    notes: tuple[str, ...]
    steps_inferred: bool = False
    unrecorded_launches: Ids = field(default_factory=lambda: np.zeros(0, np.int32))

    def forward_of(self, node: Ids) -> Ids:
        """Return the forward operator of each autograd node in `node`, or NONE."""
        index = np.searchsorted(self.nodes, node)
        is_node = (node != NONE) & (np.append(self.nodes, np.int32(NONE))[index] == node)
        return np.where(is_node, np.append(self.node_forward, np.int32(NONE))[index], NONE).astype(np.int32)

    def between(self, start_ns: int, end_ns: int) -> Attribution:
        """Return the events of a time, with all that enclose them, and the device work of these launches and of this time.

        Steps and modules keep their numbers.
        """
        host, device = self.host, self.device
        number = np.full(len(host.rows) + 1, NONE, np.int32)  # index NONE (-1) selects the last entry
        kept = np.flatnonzero((host.start_ns < end_ns) & ((host.end_ns > start_ns) | (host.start_ns >= start_ns)))
        number[kept] = np.arange(len(kept))
        runs = (device.start_ns < end_ns) & (device.end_ns > start_ns)
        node, unrecorded = np.flatnonzero(number[self.nodes] != NONE), number[self.unrecorded_launches]
        columns = {field.name: getattr(host, field.name)[kept] for field in fields(Host)}
        columns |= {name: number[columns[name]] for name in ("parent", "operator", "node", "python")}
        work = device.selected((number[device.launch] != NONE) | runs)
        return replace(
            self,
            host=Host(**columns),
            device=replace(work, launch=number[work.launch], operator=number[work.operator]),
            nodes=number[self.nodes[node]],
            node_forward=number[self.node_forward[node]],
            node_redone=self.node_redone[node],
            unrecorded_launches=unrecorded[unrecorded != NONE],
        )

    def of_steps(self, first: int, last: int) -> Attribution:
        """Return the events between the start of step `first` and the end of step `last`, and these steps alone."""
        part = self.between(self.steps[first].start_ns, self.steps[last].end_ns)

        def renumbered(step: Ids) -> Ids:
            return np.where((step >= first) & (step <= last), step - first, NONE).astype(np.int32)

        return replace(
            part,
            host=replace(part.host, step=renumbered(part.host.step)),
            device=replace(part.device, step=renumbered(part.device.step)),
            steps=self.steps[first : last + 1],
        )

    @cached_property
    def main_thread(self) -> int:
        """The thread of the training loop: the one with most operators outside autograd nodes; NONE if there is none."""
        host = self.host
        runtime = self.table.kind[host.rows] == Kind.RUNTIME
        for mask in (host.is_operator & (host.node == NONE), ~runtime, runtime):
            counts = np.bincount(host.thread[mask], minlength=1)
            if counts.any():
                return int(counts.argmax())
        return NONE


_MAX_DEPTH: Final = 64  # levels of enclosing events to climb


def climb(positions: Ids, parent_of: Callable[[Ids], Ids]) -> Ids:
    """Return the position that each of `positions` reaches by repeated calls of `parent_of` (NONE at the top)."""
    result: Ids = positions.copy()
    pending = np.arange(len(result))
    for _ in range(_MAX_DEPTH):
        parents = parent_of(result[pending])
        pending, parents = pending[parents != NONE], parents[parents != NONE]
        if not len(pending):
            break
        result[pending] = parents
    return result


def phase_name(number: int) -> Phase | Literal[""]:
    """Return the name of phase `number`, "" for NONE."""
    return TRACE_PHASES[number] if number != NONE else ""


# ---- attribution as columns for export


def attribution_columns(attribution: Attribution) -> tuple[Column, ...]:
    """Return the columns that attribution adds to the rows of the table.

    `phase`, `within` (for a collective, the phase that launched it), `module` and `step` (the step's number) are set
    for host events and device work. `operator` and `operator_row` are the name and row of the innermost operator that
    encloses the event or is it. Host events have the row of the enclosing event, `parent_row`. Device events have the
    row of their launch, `launch_row`, and the evidence for their phase, `how`. `family` is the algorithm family
    according to the name of a kernel or operator.
    """
    table, host, device = attribution.table, attribution.host, attribution.device
    row = np.append(host.rows, np.int32(NONE))  # index NONE (-1) selects the last entry

    def column(
        name: str, of_host: NDArray[Any] | int, of_device: NDArray[Any] | int, labels: tuple[str, ...] | None = None
    ) -> Column:
        values = np.full(len(table), NONE, dtype=np.int32)
        values[host.rows], values[device.rows] = of_host, of_device
        return Column(name=name, values=values, labels=labels)

    paths: dict[str, int] = {}
    numbers = [paths.setdefault(module.path or ROOT_NAME, len(paths)) for module in attribution.modules]
    path = np.array([*numbers, NONE], dtype=np.int32)
    step = np.array([*(step.number for step in attribution.steps), NONE], dtype=np.int64)
    operator_row = column("operator_row", row[host.operator], row[device.operator])
    operator = np.append(table.name, np.int32(NONE))[operator_row.values]
    evidence = np.where(device.evidence == Evidence.NONE, np.int8(NONE), device.evidence)
    return (
        column("phase", host.phase, device.phase, TRACE_PHASES),
        column("within", host.phase, device.within, TRACE_PHASES),
        column("module", path[host.module], path[device.module], tuple(paths)),
        column("step", step[host.step], step[device.step]),
        used_texts("operator", operator, table.names),
        operator_row,
        column("parent_row", row[host.parent], NONE),
        column("launch_row", NONE, row[device.launch]),
        _families(attribution),
        column("how", NONE, evidence, EVIDENCE_NAMES),
    )


def _families(attribution: Attribution) -> Column:
    table, host, device = attribution.table, attribution.host, attribution.device
    families: dict[str, int] = {}
    names = np.full(len(table), NONE, dtype=np.int32)
    for rows in (device.rows, host.rows[host.is_operator]):
        names[rows] = table.name[rows]
    used = np.unique(names[names != NONE])
    family = np.full(len(table.names) + 1, NONE, dtype=np.int32)
    family[used] = [families.setdefault(classify(table.names[i]).family, len(families)) for i in used.tolist()]
    return Column(name="family", values=family[names], labels=tuple(families))
