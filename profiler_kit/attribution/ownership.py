"""Whose the work of a trace is, as columns: what `attribution` finds and `timeline` adds up.

Positions, not rows, are what the columns here point with: position i of `Host` is the host event `table` row `rows[i]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.records.traces import TRACE_PHASES
from profiler_kit.traces.table import NONE, Bytes, Ids, Table

PHASE_NUMBERS: Final = {phase: number for number, phase in enumerate(TRACE_PHASES)}


class How(IntEnum):
    """By which evidence a device event has its phase.

    The first that holds, in the order NAME, MARK, NODE, MODULE, COPY, WINDOW. Of marks, nodes and modules that lie in each other
    the innermost counts. NONE: there is a launch, outside of all these (phase "other"), or neither a launch nor the same work
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

    `rows`: of the table. `parent`, `operator`, `node`, `python`: positions of the enclosing event, and of the innermost operator,
    autograd node, and Python call around it, itself included; NONE where there is none. Runtime calls enclose nothing.
    `phase`: an index of TRACE_PHASES or NONE. `module`: an index of `Owned.modules` or NONE. `step`: an index of `Owned.steps`.
    """

    rows: Ids
    parent: Ids
    operator: Ids
    node: Ids
    python: Ids
    phase: Bytes
    module: Ids
    step: Ids


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Device:
    """The device's work (kernels, copies, fills) by start, then the longer first, then as in the file.

    `rows`: of the table. `launch`: the runtime call's position in `Host`, NONE where the trace has none (events of one graph
    launch share theirs). `operator`: the position in `Host` of the operator that launched it. `phase`, `module`, `step` as in
    `Host`; an event without a launch has phase and module of the aligned event, where one was found (`how` is ALIGNED, `like` its
    position here), else NONE; its step is NONE in any case, being another than the aligned event's. A collective's phase is
    "communication", its module COMMUNICATION_PATH, and `within` the phase it was launched in; for all other work `within` is
    the phase. `like` is NONE for all events but the aligned; empty stands for a column of NONE.
    """

    rows: Ids
    launch: Ids
    operator: Ids
    phase: Bytes
    within: Bytes
    module: Ids
    step: Ids
    how: Bytes
    like: Ids = field(default_factory=lambda: np.zeros(0, np.int32))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Owned:
    """A trace with the owners of its work. `modules` and `steps` are what the columns' indices mean.

    `made`: of each autograd node in `nodes` (positions in `Host`) the forward operator with the node's own number, or NONE;
    `redone`: the module that asked for forward work done again in the node, outside of the modules called there, or NONE.

    `graph_launches`: how many launches have more than one kernel (CUDA graphs). `compiled`: there are regions of
    torch.compile, whose work has a phase and a region but no module of its own. `notes`: what a reader should know.
    """

    table: Table
    host: Host
    device: Device
    modules: tuple[Module, ...]
    steps: tuple[Step, ...]
    nodes: Ids = field(default_factory=lambda: np.zeros(0, np.int32))
    made: Ids = field(default_factory=lambda: np.zeros(0, np.int32))
    redone: Ids = field(default_factory=lambda: np.zeros(0, np.int32))
    graph_launches: int = 0
    compiled: bool = False
    notes: tuple[str, ...] = ()


__all__ = ["NONE", "PHASE_NUMBERS", "Device", "Host", "How", "Module", "Owned", "Step"]
