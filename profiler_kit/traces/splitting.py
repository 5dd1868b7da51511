"""Split a trace file into bytes in bounded memory: head, runs of whole events, tail.

`rewrite_trace` copies a trace event by event, with added events first and without removed ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np

from profiler_kit.errors import TraceError
from profiler_kit.traces.chunks import EVENT_LIMIT_BYTES
from profiler_kit.traces.depth import DepthScan
from profiler_kit.traces.dialect import EVENTS_KEY
from profiler_kit.traces.source import HINT_GIVE_TRACE, Source
from profiler_kit.traces.table import Ints, Mask

_HEAD_LIMIT_BYTES: Final = 64 << 20  # a real head (device properties and process groups) is far smaller
_LIST: Final = re.compile(f'"{EVENTS_KEY}"\\s*:\\s*\\['.encode())


class Head(NamedTuple):
    """The bytes before the first event, with the list's bracket. `list_only`: the file is a list, not an object."""

    data: bytes
    list_only: bool


class Run(NamedTuple):
    """Whole events with the white space around them: event i is ``data[starts[i] : ends[i]]``, without commas."""

    data: bytes
    starts: Ints
    ends: Ints


class Tail(NamedTuple):
    """A part of the bytes after the last event, from the list's closing bracket on.

    `cut_off`: the file ends before the bracket.
    """

    data: bytes
    cut_off: bool


def split(path: Path) -> Iterator[Head | Run | Tail]:
    """Yield the head, runs of events, and the parts of the tail.

    Joined with commas between events they are the file, without an event that the end of the file cuts off.

    Raises: TraceError if the file cannot be read or is not a trace.
    """
    with Source(path, where=str(path)) as source:
        head, pending = _head(source)
        yield head
        scan = DepthScan()
        scanned = 0  # of `pending`
        while True:
            commas, close = scan.feed(memoryview(pending)[scanned:])
            ends = commas + scanned
            if close is not None:
                close += scanned
                last = int(ends[-1]) + 1 if len(ends) else 0
                if pending[last:close].strip():
                    ends = np.append(ends, close)
                    last = close
                if len(ends):
                    yield _run(pending, ends)
                yield Tail(pending[last:], cut_off=False)
                break
            if len(ends):
                yield _run(pending, ends)
                pending = pending[int(ends[-1]) + 1 :]
            scanned = len(pending)
            block = source.read()
            if not block:
                yield Tail(b"", cut_off=True)
                return
            if scanned > EVENT_LIMIT_BYTES:
                raise TraceError("not a trace: an event does not end", where=source.where, hint=HINT_GIVE_TRACE)
            pending += block
        while block := source.read():
            yield Tail(block, cut_off=False)


def _run(data: bytes, ends: Ints) -> Run:
    return Run(data, np.append(np.int64(0), ends[:-1] + 1), ends)


def _head(source: Source) -> tuple[Head, bytes]:
    data = bytearray()
    while len(data) <= _HEAD_LIMIT_BYTES and (block := source.read()):
        data += block
        first_byte = bytes(data[:64].lstrip()[:1])
        if first_byte == b"[":
            list_start = data.index(b"[") + 1
            return Head(bytes(data[:list_start]), list_only=True), bytes(data[list_start:])
        match = _LIST.search(data)
        if match is not None and first_byte == b"{":
            return Head(bytes(data[: match.end()]), list_only=False), bytes(data[match.end() :])
        if first_byte not in (b"{", b""):
            break
    raise TraceError(f"not a trace: no '{EVENTS_KEY}' list", where=source.where, hint=HINT_GIVE_TRACE)


def rewrite_trace(source: Path, out: BinaryIO, new_events: Iterable[bytes], keep: Mask) -> int:
    """Write `source` to `out`, unzipped, with added and removed events. Returns the number of bytes written.

    The events `ours` (JSON) come first in the list, then the entries in `keep`.

    Kept entries are copied byte for byte. The list of a file that was cut off is closed.

    Raises: TraceError if `source` is not a trace, or not the one that `keep` was computed for.
    """
    entry = written_bytes = 0
    is_first = True  # no event was written yet, so the next one has no comma before it
    list_only, was_cut_off = False, False
    for part in split(source):
        if isinstance(part, Head):
            list_only = part.list_only
            written_bytes += out.write(part.data)
            for event in new_events:
                written_bytes += out.write((b"\n" if is_first else b",\n") + event)
                is_first = False
        elif isinstance(part, Run):
            keep_run = keep[entry : entry + len(part.ends)]
            entry += len(part.ends)
            if len(keep_run) < len(part.ends):
                break
            for start, end in _stretches(part, keep_run):
                written_bytes += out.write(b"" if is_first else b",")
                written_bytes += out.write(memoryview(part.data)[start:end])
                is_first = False
        else:
            was_cut_off = was_cut_off or part.cut_off
            written_bytes += out.write(part.data)
    if entry != len(keep):
        raise TraceError("the file changed while it was read", where=str(source), hint="try again")
    if was_cut_off:
        written_bytes += out.write(b"\n]" if list_only else b"\n]\n}")
    return written_bytes


def _stretches(run: Run, keep: Mask) -> list[tuple[int, int]]:
    """Return the byte ranges of the run's kept events. Adjacent events form one range, with the commas between them."""
    changes = np.flatnonzero(np.diff(keep, prepend=False, append=False))
    return [(int(run.starts[first]), int(run.ends[last - 1])) for first, last in changes.reshape(-1, 2)]
