"""The result of attribution: step, phase and module of a trace's events, as columns.

The columns point to events by position, not by row: position i of `Host` is the event in row `rows[i]` of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler_kit.records.lanes import ROOT_NAME
from profiler_kit.records.traces import TRACE_PHASES, TracePhase
from profiler_kit.traces.columns import Column, used_texts
from profiler_kit.traces.kernels import classify
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask, Table

PHASE_NUMBERS: Final = {phase: number for number, phase in enumerate(TRACE_PHASES)}


class Evidence(IntEnum):
    """The evidence for the phase of a device event.

    The first that holds counts, in the order NAME, MARK, NODE, MODULE, COPY, WINDOW. Of nested marks, nodes and modules the
    innermost counts. NONE: the launch lies outside of all these (phase "other"), or there is neither a launch nor the same work
    in another step.
    """

    NONE = 0
    NAME = 1  # the kernel's own name: a collective
    MARK = 2  # a mark around its launch: ours, the optimizer's, the DataLoader's, a loss
    NODE = 3  # an autograd node, or a launch on autograd's own thread
    MODULE = 4  # a module's or DDP's forward call
    WINDOW = 5  # between the first forward op that backward uses and the first node
    COPY = 6  # a copy from the host to the device outside of marks, nodes and modules; what moves data for it too
    ALIGNED = 7  # no launch in the trace: the same kernel in the same place of another step


EVIDENCE_NAMES: Final = tuple(evidence.name.lower() for evidence in Evidence)


class Step(NamedTuple):
    """A marked step: `number` as in ProfilerStep#number, the mark's place on the host's clock."""

    number: int
    start_ns: int
    end_ns: int


class Module(NamedTuple):
    """A module call's path: the names from the outermost call down, or a dotted path where the trace has marks of ours."""

    path: str
    class_name: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Host:
    """The host's events by thread, then start, enclosing before enclosed; what each inherits from what encloses it.

    `rows`: of the table. `start_ns`, `end_ns`: within bounds in which differences do not overflow. `parent`, `operator`, `node`,
    `python`: positions of the enclosing event, and of the innermost operator, autograd node, and Python call around it, itself
    included; NONE where there is none. Runtime calls enclose nothing. `phase`: an index of TRACE_PHASES or NONE.
    `module`: an index of `Attribution.modules` or NONE. `step`: an index of `Attribution.steps` or NONE.
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

    @property
    def is_operator(self) -> Mask:
        """Which events are operators. The marks that profilers of 2021 wrote as operators are none."""
        itself: Mask = self.operator == np.arange(len(self.rows))
        return itself

    def enclosing(self, column: Ids, positions: Ids | Ints) -> Ids:
        """The value of `column` at the event that encloses each of `positions`; NONE where none does."""
        parent = self.parent[positions]
        return np.where(parent != NONE, column[parent], NONE).astype(np.int32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Device:
    """The device's work (kernels, copies, fills) by start, then the longer first, then as in the file.

    `rows`: of the table. `start_ns`, `end_ns`: bounded as in `Host`. `launch`: the runtime call's position in `Host`, NONE where
    the trace has none (events of one graph launch share theirs). `operator`: the position in `Host` of the operator that launched
    it. `phase`, `module`, `step` as in `Host`. An event without a launch has phase and module of the event that it is aligned
    with, where there is one (`evidence` is ALIGNED, `aligned` its position here, else NONE); its step is NONE in any case.
    A collective's phase is "communication", its module COMMUNICATION_PATH, and `within` the phase that it was launched in; for
    all other work `within` is the phase.
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

    @property
    def collective(self) -> Mask:
        """Which events are collectives."""
        mask: Mask = self.phase == PHASE_NUMBERS["communication"]
        return mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attribution:
    """A trace with step, phase and module of its events. `modules` and `steps` are what the columns' indices mean.

    `nodes`: positions in `Host` of the autograd nodes. `node_forward`: of each node the forward operator with the node's own
    number, or NONE; `node_redone`: the module that asked for forward work done again in the node, outside of the modules called
    there, or NONE. `graph_launches`: how many launches have more than one kernel (CUDA graphs). `compiled`: there are regions
    of torch.compile, whose work has a phase and a region but no module of its own. `notes`: what a reader should know.
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

    @property
    def main_thread(self) -> int:
        """The thread that runs the training loop: the one with most operators outside of autograd's nodes; NONE without any."""
        host = self.host
        runtime = self.table.kind[host.rows] == Kind.RUNTIME
        for mask in (host.is_operator & (host.node == NONE), ~runtime, runtime):
            counts = np.bincount(host.thread[mask], minlength=1)
            if counts.any():
                return int(counts.argmax())
        return NONE


_DEEPEST: Final = 64  # events around one: further out none says anything of it


def climb(positions: Ids, above: Callable[[Ids], Ids]) -> Ids:
    """Where each of `positions` ends up by going to what is `above` it, as long as that is not NONE."""
    top: Ids = positions.copy()
    rising = np.arange(len(top))
    for _ in range(_DEEPEST):
        higher = above(top[rising])
        rising, higher = rising[higher != NONE], higher[higher != NONE]
        if not len(rising):
            break
        top[rising] = higher
    return top


def phase_name(number: int) -> TracePhase | Literal[""]:
    """The phase numbered `number`, "" for NONE."""
    return TRACE_PHASES[number] if number != NONE else ""


# ---- as columns beside the table's own


def owner_columns(attribution: Attribution) -> tuple[Column, ...]:
    """What attribution adds to each row of the table.

    `phase`, `within` (for a collective, the phase that launched it), `module`, `step` (the mark's number) for the host's and the
    device's work. `operator` is the name of the innermost operator around it, itself included, `operator_row` that one's row. The
    host's events have the row of what encloses them, `parent_row`; the device's that of their launch, `launch_row`, and the
    evidence for their phase, `how`. `family` is the algorithm family that the name of a kernel or operator tells.
    """
    table, host, device = attribution.table, attribution.host, attribution.device
    row = np.append(host.rows, np.int32(NONE))  # what NONE points to stands last

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
