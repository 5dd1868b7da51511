"""Additions to an annotated trace: spans on lanes, and quantities over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler_kit.records.runs import Span

UNATTRIBUTED: Final = "unattributed"  # the name of spans without a phase or module
DEVICE: Final = "device"  # the lanes of devices begin with it
PHASES: Final = ": phase"  # the lanes of phases end with it
COLLECTIVES: Final = ": communication"
ROOT_NAME: Final = "(root)"  # the root module's path is empty, and trace viewers cannot display an empty name


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSpan(Span):
    """A span that is one event of the trace, or an idle interval, with what is known about the event that ends it.

    `operator`, `module`, `source` (the user's line, as ``train.py(12): step``) and `launch` (the host's call that enqueues it)
    are names, "" if unknown. `launch_ns`: when that call starts.
    """

    operator: str = ""
    module: str = ""
    source: str = ""
    launch: str = ""
    launch_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterTrack:
    """A quantity over time. `name` includes the unit. Each point is (ns on the trace's clock, value from then on), in order."""

    name: str
    points: tuple[tuple[int, int | float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """Lanes in display order, then counters."""

    spans: tuple[Span, ...]
    counters: tuple[CounterTrack, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCall:
    """Calls of one function, operator or runtime function at one place of the host's call tree, `ns` with what they call.

    `parent`: the index of the caller in pre-order, -1 for a thread.
    """

    name: str
    parent: int
    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRepair:
    """The replay of `steps` steps without the profiler, before and after the finding with the number `finding` is repaired.

    Times are from the start of the first step. The saving of the finding is ``1 - after_ns / before_ns``.
    """

    finding: int
    steps: int
    before_ns: int
    after_ns: int
    before: tuple[Span, ...]
    after: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeline:
    """The lanes of one step, from its start on the host to the end of its work on the device.

    - `step`: its number, if marked. `index`: that of `Span.step`; None if the whole trace is shown.
    - `host_end_ns`: its end on the host. Until `end_ns` the device still works on it, and the host on later steps.
    - `device_ns`: from the first start to the last end of its work on the device; None without such work.
    - `omitted`: the number of spans that were left out because they are the shortest.
    - `calls`: the calls of host threads in the step, as trees.
    - `clock_ns`: how far its clock is ahead of that of the other ranks; None if it is not known.
    - `collectives`: when each collective of the step that all ranks have starts here; in one order on all ranks.
    - `repair`: what the finding that saves most would change, from the replay of the trace; None without one.
    """

    step: int | None
    start_ns: int
    end_ns: int
    host_end_ns: int
    spans: tuple[Span, ...]
    index: int | None = None
    device_ns: tuple[int, int] | None = None
    omitted: int = 0
    calls: tuple[HostCall, ...] = ()
    clock_ns: int | None = None
    collectives: tuple[int, ...] = ()
    repair: StepRepair | None = None

    def is_of_another_step(self, span: Span) -> bool:
        """Whether `span` belongs to another step, or to none."""
        return self.index is not None and span.step != self.index
