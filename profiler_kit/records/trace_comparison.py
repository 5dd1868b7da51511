"""Records of `compare` for two traces. The parts of each difference sum to the total difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from profiler_kit.records.saved import Saved
from profiler_kit.records.views import Views
from profiler_kit.units import text

MatchKind = Literal["same", "alike", "only a", "only b"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSide:
    """One side of a comparison of traces.

    - `label`: its name in sentences; the two sides always have different labels, "A" and "B" for long file names.
    - `steps`: the number of marked steps. `step_ns`: their duration; None without steps.
    - `spread`: (largest - smallest) / median busy time of its steady steps; None with fewer than three.
    - `ranks`: the number of ranks. With several, figures are means over the ranks.
    - `outside_ns`: the busy time of work outside the steps.
    """

    label: str
    file: str
    device: str
    steps: int
    step_ns: int | None
    spread: float | None
    ranks: int = 1
    outside_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KindChange:
    """A difference in kind between the two runs: `kind` ("device", "batch size") with its value on each side."""

    kind: str
    a: str
    b: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeChange:
    """The time of one item in both traces. `a_ns` or `b_ns` is 0 where the item is missing on that side.

    - `name`: the common name, or the common part of both names.
    - `alike`: ``same`` for equal names, ``alike`` for similar names that were matched, ``only a`` or ``only b`` otherwise.
    - `a_names`, `b_names`: the matched names where they differ.
    - `calls`: device events; for operators and runtime calls, their calls on the host.
    - `phase`: the phase of the item; "" where it has none.
    """

    name: str
    a_ns: int
    b_ns: int
    a_calls: int = 0
    b_calls: int = 0
    phase: str = ""
    alike: MatchKind = "same"
    a_names: tuple[str, ...] = ()
    b_names: tuple[str, ...] = ()

    @property
    def change_ns(self) -> int:
        """The time in b minus the time in a."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceComparison(Views, Saved, kind="trace_comparison"):
    """The differences between two traces.

    - `per`: the unit of all figures: ``trace``, or ``step`` where the traces have different numbers of steps. With several ranks,
      figures are means over the ranks.
    - `span`, `busy`, `idle`: the device's timeline (or operators on the host). On each side busy + idle = span, the sum of
      `phases` = busy, and the sum of `causes` = idle, to the nanosecond.
    - `noise`: the share by which equal work may differ. It is the larger `spread` where both sides have one, and at least a
      fixed share.
    - `same_work`: True if the busy times differ by no more than `noise`.
    - `kinds`: how the runs differ in kind.
    - `modules`, `operators`, `kernels`, `waits`: the changes by item.
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
    kinds: tuple[KindChange, ...] = ()
    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        times = f"{text(self.span.a_ns, 'ns')} -> {text(self.span.b_ns, 'ns')} per {self.per}"
        return f"<TraceComparison {self.a.label} -> {self.b.label}: {times}>"
