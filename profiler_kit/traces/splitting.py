"""A trace file as bytes in bounded memory: what stands before its events, runs of whole events, and what stands behind them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.errors import TraceError
from profiler_kit.traces.table import Ints

CHUNK_BYTES: Final = 4 << 20
LARGEST_HEAD_BYTES: Final = 64 << 20  # a header holds device properties and process groups: far less
LARGEST_EVENT_BYTES: Final = 64 << 20

_GZIP_MAGIC: Final = b"\x1f\x8b"
_LIST: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_HINT: Final = "give a .json or .json.gz file that torch.profiler exported"
_QUOTE, _BACKSLASH, _COMMA = ord('"'), ord("\\"), ord(",")
_OPEN_BRACE, _CLOSE_BRACE, _OPEN_BRACKET, _CLOSE_BRACKET = ord("{"), ord("}"), ord("["), ord("]")


class Head(NamedTuple):
    """What stands before the first event, the list's bracket included. `bare`: the file is its list alone."""

    data: bytes
    bare: bool


class Run(NamedTuple):
    """Whole events: the i-th is ``data[ends[i - 1] : ends[i]]``, the comma and white space before it included."""

    data: bytes
    ends: Ints


class Tail(NamedTuple):
    """What stands behind the last event, from the list's closing bracket on, in parts. `cut_off`: the file ends before that."""

    data: bytes
    cut_off: bool


def split(path: Path) -> Iterator[Head | Run | Tail]:
    """A head, runs of events, a tail's parts. Together their bytes are the file's, less an event that its end cuts off.

    Raises: TraceError where the file can't be read or is no trace.
    """
    chunks = _chunks(path)
    head, rest = _head(chunks, path)
    yield head
    ended = False
    while True:
        ends, closing = _ends(rest)
        if len(ends):
            yield Run(rest, ends)
        if closing is not None:
            break
        rest = rest[int(ends[-1]) :] if len(ends) else rest
        if ended:
            yield Tail(b"", cut_off=True)
            return
        if len(rest) > LARGEST_EVENT_BYTES:
            raise TraceError("not a trace: an event does not end", where=str(path), hint=_HINT)
        # An event larger than a chunk is scanned again each time it grows: as much again as there is, so that it stays linear.
        wanted = len(rest) + max(CHUNK_BYTES, len(rest))
        more = bytearray(rest)
        while len(more) < wanted:
            chunk = next(chunks, None)
            if chunk is None:
                ended = True
                break
            more += chunk
        rest = bytes(more)
    yield Tail(rest[int(ends[-1]) if len(ends) else 0 :], cut_off=False)
    for chunk in chunks:
        yield Tail(chunk, cut_off=False)


def _chunks(path: Path) -> Iterator[bytes]:
    """The file's bytes, unzipped; they end where a damaged gzip stream does."""
    try:
        with path.open("rb") as file:
            first = file.read(CHUNK_BYTES)
            if first[:2] != _GZIP_MAGIC:
                while first:
                    yield first
                    first = file.read(CHUNK_BYTES)
                return
            stream = zlib.decompressobj(wbits=31)
            zipped = first
            while zipped:
                try:
                    plain = stream.decompress(zipped, CHUNK_BYTES)
                except zlib.error:
                    return
                if plain:
                    yield plain
                if stream.eof:  # a file may be several streams one after the other
                    zipped = stream.unused_data or file.read(CHUNK_BYTES)
                    stream = zlib.decompressobj(wbits=31)
                else:
                    zipped = stream.unconsumed_tail or file.read(CHUNK_BYTES)
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", where=str(path), hint=_HINT) from error


def _head(chunks: Iterator[bytes], path: Path) -> tuple[Head, bytes]:
    data = bytearray()
    for chunk in chunks:
        data += chunk
        start = data.lstrip()[:1]
        if start == b"[":
            at = data.index(b"[") + 1
            return Head(bytes(data[:at]), bare=True), bytes(data[at:])
        match = _LIST.search(data)
        if match is not None and start == b"{":
            return Head(bytes(data[: match.end()]), bare=False), bytes(data[match.end() :])
        if (start and start != b"{") or len(data) > LARGEST_HEAD_BYTES:
            break
    raise TraceError("not a trace: no 'traceEvents' list", where=str(path), hint=_HINT)


def _ends(data: bytes) -> tuple[Ints, int | None]:
    """Where each whole event of `data` ends, and where the list does, if in here; `data` begins between two events."""
    text = np.frombuffer(data, dtype=np.uint8)
    quotes = _quotes(text)
    brackets = np.flatnonzero(
        (text == _OPEN_BRACE) | (text == _CLOSE_BRACE) | (text == _OPEN_BRACKET) | (text == _CLOSE_BRACKET)
    )
    brackets = brackets[np.searchsorted(quotes, brackets) & 1 == 0]  # those inside a string are text
    depth = np.where((text[brackets] == _OPEN_BRACE) | (text[brackets] == _OPEN_BRACKET), 1, -1).cumsum()
    closing = np.flatnonzero(depth < 0)
    if len(closing):
        brackets, depth, end = brackets[: closing[0]], depth[: closing[0]], int(brackets[closing[0]])
    else:
        end = None
    return brackets[depth == 0].astype(np.int64) + 1, end


def _quotes(text: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> Ints:
    """The quotes that open or close a string: those behind an even number of backslashes."""
    quotes = np.flatnonzero(text == _QUOTE).astype(np.int64)
    backslashes = np.flatnonzero(text == _BACKSLASH)
    if not len(backslashes):
        return quotes
    # Runs of backslashes: where each begins and how long it is, to be looked up by where it ends.
    begins = np.flatnonzero(np.diff(backslashes, prepend=-2) != 1)
    lengths = np.diff(begins, append=len(backslashes))
    after = backslashes[begins] + lengths
    found = np.minimum(np.searchsorted(after, quotes), len(after) - 1)
    escaped = (after[found] == quotes) & (lengths[found] & 1 == 1)
    plain: Ints = quotes[~escaped]
    return plain
