"""Two traces beside each other: what takes longer in one than in the other, taken apart so that the parts sum to the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from profiler_kit.records.saved import Saved

Alike = Literal["same", "alike", "only a", "only b"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSide:
    """One of the two. `label` is what sentences call it, never the same on both sides; `steps` are marked ones.

    `spread`: how far its steady steps' work lies apart, (largest - smallest) / median of their busy times; None with fewer than
    three. `ranks`: how many ranks' traces it is; with several, steps are their means.
    """

    label: str
    file: str
    device: str
    steps: int
    step_ns: int | None
    spread: float | None
    ranks: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeChange:
    """The time of something in both traces; `a_ns` or `b_ns` is 0 where it is not there.

    `name` is the one both have, or what the two have in common where `alike` says that their names differ; `a_names` and
    `b_names` are then what was set against each other. `calls` are of the device's events, of operators' and runtime calls else.
    """

    name: str
    a_ns: int
    b_ns: int
    a_calls: int = 0
    b_calls: int = 0
    phase: str = ""
    alike: Alike = "same"
    a_names: tuple[str, ...] = ()
    b_names: tuple[str, ...] = ()

    @property
    def change_ns(self) -> int:
        """How much longer it takes in b."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceComparison(Saved, kind="trace_comparison"):
    """What differs between two traces. `per`: what the figures are of: the whole traces, or a step (of traces that hold
    different numbers of them), with several ranks the mean of theirs.

    `span`, `busy` and `idle` are of the device's timeline (or of the operators on the host): busy and idle sum to the span, the
    `phases` to busy, and the `causes` to idle, on each side, to the nanosecond. `noise`: the share by which equal work may
    differ, the larger `spread` where both sides have one, and never less than a fixed share. `same_work`: the busy times differ
    by no more.
    """

    a: TraceSide
    b: TraceSide
    per: Literal["trace", "step"]
    span: TimeChange
    busy: TimeChange
    idle: TimeChange
    noise: float
    same_work: bool
    phases: tuple[TimeChange, ...]
    causes: tuple[TimeChange, ...]
    modules: tuple[TimeChange, ...]
    operators: tuple[TimeChange, ...]
    kernels: tuple[TimeChange, ...]
    waits: tuple[TimeChange, ...]
    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
