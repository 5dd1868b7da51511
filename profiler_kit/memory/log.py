"""What a run leaves behind: births and deaths of storages in order, what libraries took meanwhile, and the phases' bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from profiler_kit.memory.scratch import ScratchBytes
from profiler_kit.records.counts import Phase

Category = Literal["parameters", "gradients", "optimizer_state", "inputs", "saved_activations", "temporaries"]
CATEGORIES: Final[tuple[Category, ...]] = (
    "parameters", "gradients", "optimizer_state", "inputs", "saved_activations", "temporaries",
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Life:
    """A storage: how large, born where, kept by whom. Its category may become known long after its birth.

    `savers`: the modules whose ops keep it for backward, in order; empty where something else does (a checkpoint).
    `is_result`: whether the loop itself holds it (the model's output, the loss).
    """

    nbytes: int
    phase: Phase
    path: str
    op: str
    category: Category | None = None
    savers: list[str] | None = None
    is_result: bool = False
    watcher: object = None

    def kind(self) -> Category:
        """What the storage is for, as far as it is known by now."""
        if self.category is not None:
            return self.category
        return "temporaries" if self.savers is None else "saved_activations"


class Use(NamedTuple):
    """What a library or kernel takes behind `op`, after the first `place` events of the log.

    It gives the bytes back at once, unless a `keeper` (a library's handle) takes them, once and for good. `call`: what the op
    was called with, as `loading.signature` says it; empty where that is not known, or not asked for.
    """

    place: int
    scratch: ScratchBytes
    phase: Phase
    path: str
    op: str
    keeper: str | None = None
    call: str = ""


class Mark(NamedTuple):
    """A named point of the step, after the first `place` events."""

    place: int
    name: str


Event = tuple[int, Life]  # bytes: positive for a birth, negative for a death


@dataclass(slots=True, eq=False)
class Log:
    """Events, uses and marks in order. `steps` holds the number of events before each step."""

    events: list[Event] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    def begin_step(self) -> None:
        """A step begins here; the marks are those of the last one."""
        self.steps.append(len(self.events))
        self.marks.clear()
        self.mark("before forward")

    def mark(self, name: str) -> None:
        """Names this point."""
        self.marks.append(Mark(len(self.events), name))

    def note(self, text: str) -> None:
        """Says once what the figures leave out."""
        self.notes[text] = None

    def place_of(self, name: str) -> int | None:
        """The number of events before the mark called `name`, in the last step."""
        return next((mark.place for mark in self.marks if mark.name == name), None)

    def alive(self, place: int) -> Iterator[Life]:
        """The storages that live after the first `place` events, in the order of their births."""
        living: dict[int, Life] = {}
        for change, life in self.events[:place]:
            if change > 0:
                living[id(life)] = life
            else:
                living.pop(id(life), None)
        yield from living.values()

    def levels(self) -> list[int]:
        """levels[i]: bytes of all storages that live after the first `i` events."""
        held, levels = 0, [0]
        for change, _ in self.events:
            held += change
            levels.append(held)
        return levels
