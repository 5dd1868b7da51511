"""Times as a trace spells them, decimal µs, to whole ns: half up, and without an error of floating point.

A float of µs since 1970 keeps a quarter of a µs. Below `EXACT_BELOW_US` (50 days) a float is within a quarter of a ns of what was
written, so where it is that near to a whole ns, that is the one; elsewhere the text decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from math import floor
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces.table import Ints, Mask

Text = bytes | msgspec.Raw

EXACT_BELOW_US: Final = 2.0**42
NO_TIME_NS: Final = np.iinfo(np.int64).min
_LATEST_NS: Final = 2**62  # later ones could not be added to without running over
_NEAR_NS: Final = 0.25
_FRACTION_DIGITS: Final = 3
_SAFE_DIGITS: Final = 15  # of µs, so that ns fit


def nanoseconds(microseconds: int | str) -> int:
    """`microseconds`, an integer or decimal text as the file holds it, in whole ns, rounded half up, without a float.

    Raises: ValueError for text that is no finite number.
    """
    if isinstance(microseconds, int):
        return microseconds * 1000
    whole, _, fraction = microseconds.partition(".")
    if len(fraction) == _FRACTION_DIGITS and fraction.isdecimal() and whole.isdecimal():  # what Kineto writes
        return int(whole) * 1000 + int(fraction)
    try:
        value = Decimal(microseconds)
        if value.is_finite() and value.adjusted() > len(str(_LATEST_NS)):  # a thousand zeros are no time either
            raise ValueError(f"{microseconds!r} is no time")
        return floor(value * 1000 + Decimal("0.5"))
    except (InvalidOperation, OverflowError, ValueError) as error:
        raise ValueError(f"{microseconds!r} is no time") from error


def from_floats(microseconds: NDArray[np.float64]) -> tuple[Ints, Mask]:
    """Whole ns, and where they are not sure: there the text has to be asked. NaN becomes NO_TIME_NS and is sure."""
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = microseconds * 1000
        innermost_enclosing = np.rint(scaled)
        sure = (np.abs(microseconds) < EXACT_BELOW_US) & (np.abs(scaled - innermost_enclosing) <= _NEAR_NS)
    missing = np.isnan(microseconds)
    ns = np.where(sure, innermost_enclosing, 0).astype(np.int64)
    ns[missing] = NO_TIME_NS
    return ns, ~(sure | missing)


def from_texts(texts: Sequence[Text]) -> Ints:
    """Whole ns; NO_TIME_NS for what is no time. Texts of one length and form are worked out together."""
    found = np.full(len(texts), NO_TIME_NS, dtype=np.int64)
    sizes = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    for size in np.unique(sizes).tolist():
        at = np.flatnonzero(sizes == size)
        group = texts if len(at) == len(texts) else [texts[i] for i in at.tolist()]
        found[at] = _of_one_size(group, size)
    return found


def _of_one_size(texts: Sequence[Text], size: int) -> Ints:
    whole = size - _FRACTION_DIGITS - 1
    if 0 < size <= _SAFE_DIGITS + _FRACTION_DIGITS + 1:
        digits = np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(len(texts), size) - np.uint8(ord("0"))
        if size <= _SAFE_DIGITS and (digits <= 9).all():
            return _number(digits) * 1000
        point = np.uint8((ord(".") - ord("0")) % 256)
        if whole > 0 and (digits[:, whole] == point).all():
            digits = np.delete(digits, whole, axis=1)
            if (digits <= 9).all():
                return _number(digits)
    return np.fromiter(map(_one, texts), dtype=np.int64, count=len(texts))


def _number(digits: NDArray[np.uint8]) -> Ints:
    value = np.zeros(len(digits), dtype=np.int64)
    for column in digits.T:
        value = value * 10 + column
    return value


def _one(text: Text) -> int:
    """Also quoted numbers, and those with an exponent."""
    try:
        ns = nanoseconds(bytes(text).decode("ascii").strip(' "'))
    except ValueError:  # and UnicodeDecodeError, which is one
        return NO_TIME_NS
    return ns if abs(ns) < _LATEST_NS else NO_TIME_NS
