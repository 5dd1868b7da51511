"""Runs of decoded events: their text, their phases, and their times, from decimal µs to integer ns without errors of floats.

A float of µs since 1970 resolves a quarter of a µs. Below `EXACT_BELOW_US` (50 days) a float is within a quarter of a
ns of its text, so if it is that close to an integer ns, that ns is exact. Otherwise the text is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from itertools import compress
from math import floor
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces import malformed
from profiler_kit.traces.chunks import NOT_DECODED
from profiler_kit.traces.dialect import AnyEvent, Event, ExactEvent, Times
from profiler_kit.traces.table import Ints, Mask

Text = bytes | msgspec.Raw

EXACT_BELOW_US: Final = 2.0**42
NO_TIME_NS: Final = np.iinfo(np.int64).min
_LATEST_NS: Final = 2**62  # sums of later times would overflow
_MAX_ROUNDING_NS: Final = 0.25
_FRACTION_DIGITS: Final = 3
_SAFE_DIGITS: Final = 15  # digits of µs whose ns fit into 64 bits


def nanoseconds(microseconds: int | str) -> int:
    """Return `microseconds`, an integer or decimal text, in integer ns, rounded half up without a float.

    Raises: ValueError for text that is not a finite number.
    """
    if isinstance(microseconds, int):
        return microseconds * 1000
    integer, _, fraction = microseconds.partition(".")
    if len(fraction) == _FRACTION_DIGITS and fraction.isdecimal() and integer.isdecimal():  # Kineto's format
        return int(integer) * 1000 + int(fraction)
    try:
        value = Decimal(microseconds)
        # a number with a thousand zeros is not a time
        if value.is_finite() and value.adjusted() > len(str(_LATEST_NS)):
            raise ValueError(f"{microseconds!r} is not a time")
        return floor(value * 1000 + Decimal("0.5"))
    except (InvalidOperation, OverflowError, ValueError) as error:
        raise ValueError(f"{microseconds!r} is not a time") from error


def from_floats(microseconds: NDArray[np.float64]) -> tuple[Ints, Mask]:
    """Return integer ns, and where they are not exact, so that the text must be parsed.

    NaN becomes NO_TIME_NS, which is exact.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = microseconds * 1000
        innermost_enclosing = np.rint(scaled)
        is_exact = (np.abs(microseconds) < EXACT_BELOW_US) & (np.abs(scaled - innermost_enclosing) <= _MAX_ROUNDING_NS)
    missing = np.isnan(microseconds)
    ns = np.where(is_exact, innermost_enclosing, 0).astype(np.int64)
    ns[missing] = NO_TIME_NS
    return ns, ~(is_exact | missing)


def from_texts(texts: Sequence[Text]) -> Ints:
    """Return integer ns; NO_TIME_NS for text that is not a time. Texts of equal length are parsed together."""
    ns = np.full(len(texts), NO_TIME_NS, dtype=np.int64)
    sizes = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    for size in np.unique(sizes).tolist():
        indices = np.flatnonzero(sizes == size)
        group = texts if len(indices) == len(texts) else [texts[i] for i in indices.tolist()]
        ns[indices] = _parse_equal_lengths(group, size)
    return ns


def _parse_equal_lengths(texts: Sequence[Text], size: int) -> Ints:
    integer_digits = size - _FRACTION_DIGITS - 1
    if 0 < size <= _SAFE_DIGITS + _FRACTION_DIGITS + 1:
        digits = np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(len(texts), size) - np.uint8(ord("0"))
        if size <= _SAFE_DIGITS and (digits <= 9).all():
            return _from_digits(digits) * 1000
        point = np.uint8((ord(".") - ord("0")) % 256)
        if integer_digits > 0 and (digits[:, integer_digits] == point).all():
            digits = np.delete(digits, integer_digits, axis=1)
            if (digits <= 9).all():
                return _from_digits(digits)
    return np.fromiter(map(_parse_time, texts), dtype=np.int64, count=len(texts))


def _from_digits(digits: NDArray[np.uint8]) -> Ints:
    value = np.zeros(len(digits), dtype=np.int64)
    for column in digits.T:
        value = value * 10 + column
    return value


def _parse_time(text: Text) -> int:
    """Parse one time, which may be quoted or have an exponent."""
    try:
        ns = nanoseconds(bytes(text).decode("ascii").strip(' "'))
    except ValueError:  # and UnicodeDecodeError, which is one
        return NO_TIME_NS
    return ns if abs(ns) < _LATEST_NS else NO_TIME_NS


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
