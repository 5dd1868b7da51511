"""Find the ends of the values of a JSON list or object, in text of any size, without decoding it."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_SLICE_BYTES: Final = 1 << 20  # scanned at once; text made only of brackets needs fifty times its size in arrays
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_DEPTH_CHANGE: Final = np.zeros(256, dtype=np.int8)  # change of depth by a byte outside strings
_DEPTH_CHANGE[[ord("{"), ord("[")]] = 1
_DEPTH_CHANGE[[ord("}"), ord("]")]] = -1
_STRUCTURE: Final = _DEPTH_CHANGE != 0
_STRUCTURE[ord(",")] = True


class ScanResult(NamedTuple):
    """`commas`: positions of commas between the values of the list or object.

    `close`: the position of its end, or None.
    """

    commas: NDArray[np.int64]
    close: int | None


class DepthScan:
    """A scan inside a list or object that starts between two values. The text may come in pieces of any size."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = 0
        self._escaping = 0  # 1 after an odd number of backslashes

    def feed(self, text: bytes | memoryview) -> ScanResult:
        """Return the commas and the end in `text`, which continues the text of the last call.

        Text after the end is ignored.
        """
        commas = []
        for start in range(0, len(text), _SLICE_BYTES):
            positions, close = self._slice(np.frombuffer(text[start : start + _SLICE_BYTES], dtype=np.uint8))
            commas.append(positions + start)
            if close is not None:
                return ScanResult(np.concatenate(commas), close + start)
        return ScanResult(np.concatenate(commas) if commas else np.empty(0, dtype=np.int64), None)

    def _slice(self, text: NDArray[np.uint8]) -> tuple[NDArray[np.int64], int | None]:
        quotes = self._quotes(text)
        marks = np.flatnonzero(_STRUCTURE[text])
        if len(quotes) or self._in_string:
            marks = marks[(np.searchsorted(quotes, marks) + self._in_string) & 1 == 0]
        self._in_string = (self._in_string + len(quotes)) & 1
        depth = self._depth + np.cumsum(_DEPTH_CHANGE[text[marks]], dtype=np.int64)
        if len(depth):
            self._depth = int(depth[-1])
        below = np.flatnonzero(depth < 0)
        close = int(marks[below[0]]) if len(below) else None
        if close is not None:
            marks, depth = marks[: below[0]], depth[: below[0]]
        return marks[(depth == 0) & (text[marks] == ord(","))], close

    def _quotes(self, text: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the quotes that begin or end a string: those after an even number of backslashes."""
        quotes = np.flatnonzero(text == _QUOTE)
        slashes = np.flatnonzero(text == _BACKSLASH)
        escaping, self._escaping = self._escaping, 0
        if escaping and len(quotes) and quotes[0] == 0:
            quotes = quotes[1:]
        if not len(slashes):
            return quotes
        first = np.concatenate(([True], np.diff(slashes) != 1))  # the first backslash of each run
        begin = np.maximum.accumulate(np.where(first, slashes, -1))
        odd = (slashes - begin + 1 + (escaping & (begin == 0))) & 1
        if slashes[-1] == len(text) - 1:
            self._escaping = int(odd[-1])
        at = np.searchsorted(slashes, quotes) - 1  # the last backslash before each quote
        escaped = (at >= 0) & (slashes[at] == quotes - 1) & (odd[at] == 1)
        unescaped: NDArray[np.int64] = quotes[~escaped]
        return unescaped
