"""A trace file as bytes in bounded memory: what stands before its events, runs of whole events, and what stands behind them.

It is copied so event by event, with events of ours before its own and without those that nobody wants.
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
from profiler_kit.traces.source import HINT_WHAT, Source
from profiler_kit.traces.table import Ints, Mask

_HEAD_LIMIT_BYTES: Final = 64 << 20  # device properties and process groups: far less
_LIST: Final = re.compile(f'"{EVENTS_KEY}"\\s*:\\s*\\['.encode())


class Head(NamedTuple):
    """What stands before the first event, the list's bracket included. `list_only`: the file is its list alone."""

    data: bytes
    list_only: bool


class Run(NamedTuple):
    """Whole events with the white space around them: the i-th is ``data[starts[i] : ends[i]]``; commas are in none."""

    data: bytes
    starts: Ints
    ends: Ints


class Tail(NamedTuple):
    """What stands behind the last event, from the list's closing bracket on, in parts. `cut_off`: the file ends before that."""

    data: bytes
    cut_off: bool


def split(path: Path) -> Iterator[Head | Run | Tail]:
    """A head, runs of events, a tail's parts. With a comma between events they are the file, less an event that its end cuts off.

    Raises: TraceError where the file can't be read or is no trace.
    """
    with Source(path, where=str(path)) as source:
        head, rest = _head(source)
        yield head
        scan = DepthScan()
        scanned = 0  # of `rest`
        while True:
            commas, close = scan.feed(memoryview(rest)[scanned:])
            ends = commas + scanned
            if close is not None:
                close += scanned
                last = int(ends[-1]) + 1 if len(ends) else 0
                if rest[last:close].strip():
                    ends = np.append(ends, close)
                    last = close
                if len(ends):
                    yield _run(rest, ends)
                yield Tail(rest[last:], cut_off=False)
                break
            if len(ends):
                yield _run(rest, ends)
                rest = rest[int(ends[-1]) + 1 :]
            scanned = len(rest)
            block = source.read()
            if not block:
                yield Tail(b"", cut_off=True)
                return
            if scanned > EVENT_LIMIT_BYTES:
                raise TraceError("not a trace: an event does not end", where=source.where, hint=HINT_WHAT)
            rest += block
        while block := source.read():
            yield Tail(block, cut_off=False)


def _run(data: bytes, ends: Ints) -> Run:
    return Run(data, np.append(np.int64(0), ends[:-1] + 1), ends)


def _head(source: Source) -> tuple[Head, bytes]:
    data = bytearray()
    while len(data) <= _HEAD_LIMIT_BYTES and (block := source.read()):
        data += block
        begins = bytes(data[:64].lstrip()[:1])
        if begins == b"[":
            at = data.index(b"[") + 1
            return Head(bytes(data[:at]), list_only=True), bytes(data[at:])
        match = _LIST.search(data)
        if match is not None and begins == b"{":
            return Head(bytes(data[: match.end()]), list_only=False), bytes(data[match.end() :])
        if begins not in (b"{", b""):
            break
    raise TraceError(f"not a trace: no '{EVENTS_KEY}' list", where=source.where, hint=HINT_WHAT)


def rewrite(source: Path, out: BinaryIO, ours: Iterable[bytes], keep: Mask) -> int:
    """Writes `source` to `out`, unzipped: `ours` (an event's JSON each) first in its list, then the entries that `keep` marks.

    What is kept stays byte for byte; a file that was cut off ends as a list ought to. Returns how many bytes were written.

    Raises: TraceError where `source` is no trace, or not the one that `keep` was made for.
    """
    at = written = 0
    empty = True  # no event is written yet: the next one takes no comma
    list_only, ended = False, False
    for part in split(source):
        if isinstance(part, Head):
            list_only = part.list_only
            written += out.write(part.data)
            for event in ours:
                written += out.write((b"\n" if empty else b",\n") + event)
                empty = False
        elif isinstance(part, Run):
            wanted = keep[at : at + len(part.ends)]
            at += len(part.ends)
            if len(wanted) < len(part.ends):
                break
            for begin, end in _stretches(part, wanted):
                written += out.write(b"" if empty else b",")
                written += out.write(memoryview(part.data)[begin:end])
                empty = False
        else:
            ended = ended or part.cut_off
            written += out.write(part.data)
    if at != len(keep):
        raise TraceError("the file changed while it was read", where=str(source), hint="try again")
    if ended:
        written += out.write(b"\n]" if list_only else b"\n]\n}")
    return written


def _stretches(run: Run, wanted: Mask) -> list[tuple[int, int]]:
    """Where the run's wanted events stand, neighbours in one piece with the commas between them."""
    changes = np.flatnonzero(np.diff(wanted, prepend=False, append=False))
    return [(int(run.starts[first]), int(run.ends[last - 1])) for first, last in changes.reshape(-1, 2)]
