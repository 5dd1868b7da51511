"""Copy a trace file byte for byte, with more events at the start of its list, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from profiler_kit.errors import TraceError
from profiler_kit.traces.chunks import EVENT_LIMIT_BYTES
from profiler_kit.traces.depth import DepthScan
from profiler_kit.traces.dialect import EVENTS_KEY
from profiler_kit.traces.source import HINT_GIVE_TRACE, Source

_HEAD_LIMIT_BYTES: Final = 64 << 20  # a real head (device properties and process groups) is far smaller
_LIST: Final = re.compile(f'"{EVENTS_KEY}"\\s*:\\s*\\['.encode())


class _Head(NamedTuple):
    """The bytes before the first event, with the list's bracket. `list_only`: the file is a list, not an object."""

    data: bytes
    list_only: bool


def rewrite_trace(path: Path, out: BinaryIO, new_events: Iterable[bytes]) -> int:
    """Write the trace at `path` to `out`, unzipped, after `new_events` (JSON). Returns the number of bytes written.

    Of a file that is cut off, the whole events are written and the list is closed.

    Raises: TraceError if the file cannot be read or is not a trace.
    """
    with Source(path, where=str(path)) as source:
        head, pending = _head(source)
        written = out.write(head.data)
        separator = b""
        for event in new_events:
            written += out.write(separator + b"\n" + event)
            separator = b","
        scan, scanned = DepthScan(), 0  # of `pending`, which begins after the last comma between events
        while True:
            commas, close = scan.feed(memoryview(pending)[scanned:])
            if close is not None:
                has_event = len(commas) > 0 or pending[: close + scanned].strip()
                written += out.write((separator if has_event else b"") + pending)
                break
            if len(commas):
                end = int(commas[-1]) + scanned
                written += out.write(separator + pending[:end])
                separator, pending = b",", pending[end + 1 :]
            scanned = len(pending)
            block = source.read()
            if not block:
                return written + out.write(b"\n]" if head.list_only else b"\n]\n}")
            if scanned > EVENT_LIMIT_BYTES:
                raise TraceError("not a trace: an event does not end", where=source.where, hint=HINT_GIVE_TRACE)
            pending += block
        while block := source.read():
            written += out.write(block)
    return written


def _head(source: Source) -> tuple[_Head, bytes]:
    data = bytearray()
    while len(data) <= _HEAD_LIMIT_BYTES and (block := source.read()):
        data += block
        first_byte = bytes(data[:64].lstrip()[:1])
        if first_byte == b"[":
            list_start = data.index(b"[") + 1
            return _Head(bytes(data[:list_start]), list_only=True), bytes(data[list_start:])
        match = _LIST.search(data)
        if match is not None and first_byte == b"{":
            return _Head(bytes(data[: match.end()]), list_only=False), bytes(data[match.end() :])
        if first_byte not in (b"{", b""):
            break
    raise TraceError(f"not a trace: no '{EVENTS_KEY}' list", where=source.where, hint=HINT_GIVE_TRACE)
