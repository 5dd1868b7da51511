"""The record of a simulated run: allocations and frees of storages, workspace of libraries, and marks between phases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from profiler_kit.memory.workspace import WorkspaceBytes
from profiler_kit.records.calls import StepCall
from profiler_kit.records.counts import Phase

Category = Literal["parameters", "gradients", "optimizer_state", "inputs", "saved_activations", "temporaries"]
CATEGORIES: Final[tuple[Category, ...]] = (
    "parameters", "gradients", "optimizer_state", "inputs", "saved_activations", "temporaries",
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Lifetime:
    """A storage: its size, the place of its allocation, its users. The category may become known after the allocation.

    `savers`: the modules whose ops save it for backward, in order; empty if something else keeps it, such as a checkpoint;
    None if it is not saved. `is_result`: whether the training loop holds it (the model's output, the loss).
    """

    nbytes: int
    phase: Phase
    path: str
    op: str
    category: Category | None = None
    savers: list[str] | None = None
    is_result: bool = False
    storage_ref: object = None  # the tracker's weak reference

    def kind(self) -> Category:
        """The category of the storage, from the information so far."""
        if self.category is not None:
            return self.category
        return "temporaries" if self.savers is None else "saved_activations"


class WorkspaceUse(NamedTuple):
    """The workspace of a call of `op`, after the first `position` events of the log.

    Temporary workspace is freed at the end of the call. With `handle`, a library handle keeps the bytes until the process
    ends. `call`: the call's arguments in the form of `loading.call_signatures`; "" if unknown or not recorded.
    """

    position: int
    workspace: WorkspaceBytes
    phase: Phase
    path: str
    op: str
    handle: str | None = None
    call: str = ""


class Mark(NamedTuple):
    """A named point of the step, after the first `position` events."""

    position: int
    name: str


Event = tuple[int, Lifetime]  # bytes: positive for an allocation, negative for a free


@dataclass(slots=True, eq=False)
class MemoryLog:
    """Events, workspace uses and marks in order. `steps`: the number of events before each step.

    `calls`: the op calls of the last step, where the simulation records them.
    """

    events: list[Event] = field(default_factory=list)
    uses: list[WorkspaceUse] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    calls: list[StepCall] = field(default_factory=list)

    def begin_step(self) -> None:
        """Start a step; drop the marks and calls of the previous step."""
        self.steps.append(len(self.events))
        self.marks.clear()
        self.calls.clear()
        self.mark("before forward")

    def mark(self, name: str) -> None:
        """Name the current position."""
        self.marks.append(Mark(len(self.events), name))

    def note(self, text: str) -> None:
        """Add a note about a limit of the figures, once."""
        self.notes[text] = None

    def position_of(self, name: str) -> int | None:
        """The number of events before the mark `name` of the last step; None without this mark."""
        return next((mark.position for mark in self.marks if mark.name == name), None)

    def live_at(self, position: int) -> Iterator[Lifetime]:
        """The live storages after the first `position` events, in the order of allocation."""
        live: dict[int, Lifetime] = {}
        for change, lifetime in self.events[:position]:
            if change > 0:
                live[id(lifetime)] = lifetime
            else:
                live.pop(id(lifetime), None)
        yield from live.values()

    def live_bytes(self) -> list[int]:
        """Bytes of all live storages; item i is after the first i events."""
        return [0, *accumulate(change for change, _ in self.events)]
