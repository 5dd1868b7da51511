"""What an annotated trace shows beside the original events: stretches on lanes, and quantities over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler_kit.records.runs import Span

UNATTRIBUTED: Final = "unattributed"  # the name of what has no owner
ROOT_NAME: Final = "(root)"  # the root module's path is empty, and a box without a name can't be read


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterTrack:
    """A quantity over time: `points` are (ns on the trace's own clock, value from then on) in order. `name` says the unit."""

    name: str
    points: tuple[tuple[int, int | float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """Lanes in the order in which they are to be shown, then counters. `notes`: what could not be shown, and why."""

    spans: tuple[Span, ...]
    counters: tuple[CounterTrack, ...] = ()
    notes: tuple[str, ...] = ()
