"""Runs of decoded events: their text, their phases, their times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces import malformed
from profiler_kit.traces.chunks import NOT_DECODED
from profiler_kit.traces.dialect import AnyEvent, Event, ExactEvent, Times
from profiler_kit.traces.table import Ints
from profiler_kit.traces.times import from_floats, from_texts

_EVENTS: Final = msgspec.json.Decoder(list[Event], strict=False)
_EXACT_EVENTS: Final = msgspec.json.Decoder(list[ExactEvent], strict=False)
_TIMES: Final = msgspec.json.Decoder(list[Times], strict=False)
NO_PHASE: Final = "\0"


class Run(NamedTuple):
    """Events decoded together, and their text."""

    events: list[Event] | list[ExactEvent]
    text: bytes

    def times(self) -> list[Times]:
        """Return the times of each event as text."""
        return _TIMES.decode(self.text)


def decode(text: bytes, *, exact: bool) -> Run:
    """Return the events in `text`, a JSON list. `exact`: with start times as text. Raises: one of NOT_DECODED."""
    return Run((_EXACT_EVENTS if exact else _EVENTS).decode(text), text)


def event_of(text: bytes) -> Event | None:
    """Return the one event in `text`, even if malformed; None if it is not an event."""
    if not text.lstrip().startswith(b"{"):
        return None
    try:
        return _EVENTS.decode(b"[" + text + b"]")[0]
    except NOT_DECODED:
        return malformed.event_of(text)


def phases_of(events: Sequence[AnyEvent]) -> NDArray[np.uint8]:
    """Return the "ph" of each event as one byte."""
    phases = "".join([e.ph for e in events])
    if len(phases) != len(events) or not phases.isascii():
        phases = "".join([(e.ph if len(e.ph) == 1 and e.ph.isascii() else "?") if e.ph else NO_PHASE for e in events])
    return np.frombuffer(phases.encode("ascii"), dtype=np.uint8)


def times_of(rows: Sequence[Any], text_times: Callable[[], Iterable[Times]]) -> tuple[Ints, Ints, float]:
    """Return start and duration of each of `rows`, and the share of starts that had to be read from the text.

    `text_times`: returns the times as text. It is called only if a float is not exact.
    """
    duration, unsure_durations = from_floats(np.fromiter([e.dur for e in rows], dtype=np.float64, count=len(rows)))
    if isinstance(rows[0], ExactEvent):
        start, unsure_starts = from_texts([e.ts for e in rows]), np.zeros(len(rows), dtype=np.bool_)
    else:
        start, unsure_starts = from_floats(np.fromiter([e.ts for e in rows], dtype=np.float64, count=len(rows)))
    if unsure_durations.any() or unsure_starts.any():
        texts = list(text_times())
        start[unsure_starts] = from_texts([t.ts for t in compress(texts, unsure_starts.tolist())])
        duration[unsure_durations] = from_texts([t.dur for t in compress(texts, unsure_durations.tolist())])
    return start, duration, float(unsure_starts.mean())
