"""Read a trace's document in pieces with bounded memory: runs of decoded events, and the other values.

The document is cut at a likely end of an event, and the part before the cut is decoded as one list. If that succeeds,
the cut is proven to lie between two events. Only text that does not decode is scanned byte by byte for the ends of
events, and decoded event by event.
"""

from __future__ import annotations

import codecs
import gc
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from profiler_kit.errors import TraceError
from profiler_kit.traces.depth import DepthScan
from profiler_kit.traces.dialect import EVENTS_KEY
from profiler_kit.traces.source import HINT_GIVE_TRACE, Source

Decoded = TypeVar("Decoded")

# Of one event, or one key's text. The largest seen is 1 MB (a stack of ten thousand frames).
EVENT_LIMIT_BYTES: Final = 64 << 20
_VALUE_LIMIT_BYTES: Final = 16 << 20  # of a stored value beside the events
_MAX_KEYS: Final = 10_000  # of the document; a trace has about ten, plus those that its program added
_MAX_CUT_ATTEMPTS: Final = 8
_FIRST_STEP_BYTES: Final = 4 << 10
_LAST_STEP_BYTES: Final = 1 << 20
_LOOK_BACK_BYTES: Final = 512
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_BETWEEN_EVENTS: Final = re.compile(rb"\}\s*(,)\s*\{[^{}]*$")
_KEY: Final = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
NOT_DECODED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable the cyclic garbage collector. On millions of acyclic objects it would take half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class UndecodedEvents(NamedTuple):
    """The texts of events that do not decode as a run."""

    texts: list[bytes]


class Document(Generic[Decoded]):
    """The document in `source`.

    `decode` turns the text of a run, a JSON list, into events, or raises one of NOT_DECODED.

    `skip`: is called at the start of the first list, and returns where to continue: the start, or that of a later event.

    `runs` fills `values` with the texts of the values whose key is in `stored_keys`, and `keys` with all keys.
    Afterwards, `cut_off` is true if the document ended early, and `damage` describes the first invalid JSON, or is
    None.
    """

    def __init__(
        self,
        source: Source,
        decode: Callable[[bytes], Decoded],
        stored_keys: Collection[str],
        skip: Callable[[int], int] = lambda start: start,
    ) -> None:
        self.values: dict[str, bytes] = {}
        self.keys: list[str] = []
        self.lists = 0  # lists of events
        self.cut_off = False
        self.damage: str | None = None
        self.first = b""  # the start of the file
        self._source = source
        self._decode = decode
        self._stored_keys = stored_keys
        self._skip = skip
        self._text = b""  # the text that was read last; consumed up to `_at`
        self._at = 0
        self._dropped_bytes = 0  # bytes before `_text`
        self._last_block = False

    def runs(self) -> Iterator[Decoded | UndecodedEvents]:
        """Yield the events in file order, in runs that fit in memory.

        Raises: TraceError for an event beyond the size limit.
        """
        first_byte = self._next_byte()
        while len(self._text) - self._at < len(codecs.BOM_UTF8) and self._read_more():
            pass
        if self._text.startswith(codecs.BOM_UTF8, self._at):  # some editors on Windows write it
            self._at += len(codecs.BOM_UTF8)
            first_byte = self._next_byte()
        self.first = self._text[:_LOOK_BACK_BYTES]
        if first_byte == b"[":
            self._at += 1
            yield from self._list()
        elif first_byte == b"{":
            self._at += 1
            yield from self._object()
        elif first_byte:
            self._damaged("the text begins with neither an object nor a list")
        if self.damage is None and not self.cut_off and self._next_byte():
            self._damaged("there is text after the end of the document")
        if self._source.damage:
            self.cut_off = True

    def _object(self) -> Iterator[Decoded | UndecodedEvents]:
        while True:
            byte = self._next_byte()
            if byte == b"}":
                self._at += 1
                return
            if byte == b",":
                self._at += 1
                continue
            key = self._key() if byte == b'"' else None
            colon = b"" if key is None else self._next_byte()
            if key is None or colon != b":":
                if colon or byte not in (b"", b'"'):
                    self._damaged("expected a key and a colon")
                else:
                    self.cut_off = True
                return
            self._at += 1
            self.keys.append(key)
            if len(self.keys) > _MAX_KEYS:
                self._damaged(f"the object has more than {_MAX_KEYS:,} keys")
                return
            if key == EVENTS_KEY and self._next_byte() == b"[":
                self._at += 1
                yield from self._list()
            else:
                self._value(key)
            if self.cut_off or self.damage is not None:
                return

    def _key(self) -> str | None:
        while (match := _KEY.match(self._text, self._at)) is None:
            if not self._read_more():
                return None
        self._at = match.end()
        return match[1].decode("utf-8", errors="replace")

    def _value(self, key: str) -> None:
        """Consume one value, and store its text if its key is in `stored_keys`."""
        parts: list[bytes] = []
        size, step = 0, _FIRST_STEP_BYTES
        scan = DepthScan()
        while True:
            if self._at == len(self._text) and not self._read_more():
                self.cut_off = True
                return
            part = self._text[self._at : self._at + step]
            commas, close = scan.feed(part)
            end = int(commas[0]) if len(commas) else close
            part = part[:end]
            self._at += len(part)
            size += len(part)
            if key in self._stored_keys and size <= _VALUE_LIMIT_BYTES:
                parts.append(part)
            if end is not None:
                break
            step = min(2 * step, _LAST_STEP_BYTES)
        if key in self._stored_keys and size <= _VALUE_LIMIT_BYTES:
            self.values[key] = b"".join(parts)

    def _list(self) -> Iterator[Decoded | UndecodedEvents]:
        self.lists += 1
        start = self._dropped_bytes + self._at
        if self.lists == 1 and (after := self._skip(start)) > start:
            self._source.skip_to(after)
            self._text, self._at, self._dropped_bytes, self._last_block = b"", 0, after, False
        while True:
            run = self._run()
            if run is not None:
                yield run
                continue
            texts, closed = self._elements()
            if texts:
                try:
                    yield self._decode(b"".join((b"[", b",".join(texts), b"]")))
                except NOT_DECODED:
                    yield UndecodedEvents(texts)
            if closed:
                return
            if not texts:
                self.cut_off = True
                return

    def _run(self) -> Decoded | None:
        """Return the events up to the last likely end of an event; None if the text before it does not decode."""
        if not self._last_block:
            self._read_more()
        cut = self._likely_end()
        if cut is None:
            return None
        try:
            events = self._decode(b"".join((b"[", memoryview(self._text)[self._at : cut], b"]")))
        except NOT_DECODED:
            return None
        self._at = cut + 1
        return events

    def _likely_end(self) -> int | None:
        """Return the position of the comma before the last event with a "ph" in the text."""
        before = len(self._text)
        for _ in range(_MAX_CUT_ATTEMPTS):
            before = self._text.rfind(b'"ph"', self._at, before)
            if before < 0:
                return None
            match = _BETWEEN_EVENTS.search(self._text, max(self._at, before - _LOOK_BACK_BYTES), before)
            if match:
                return match.start(1)
        return None

    def _elements(self) -> tuple[list[bytes], bool]:
        """Return the texts of the whole events in the text, and whether the list ends after them.

        Reads until there is one.
        """
        scan = DepthScan()
        scanned = 0
        while True:
            commas, close = scan.feed(memoryview(self._text)[self._at + scanned :])
            if len(commas) or close is not None:
                break
            scanned = len(self._text) - self._at
            if not self._read_more():
                return [], False
        base = self._at + scanned
        texts = []
        for comma in (commas + base).tolist():
            texts.append(self._text[self._at : comma])
            self._at = comma + 1
        if close is not None:
            close += base
            last = self._text[self._at : close]
            if last.strip():
                texts.append(last)
            if self._text[close] != ord("]"):
                self._damaged("the bracket at the end of a list does not match its start")
            self._at = close + 1
        return texts, close is not None

    def _next_byte(self) -> bytes:
        """Return the next unread byte that is not white space; empty at the end of the text."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None
            self._at = space.end()
            if self._at < len(self._text) or not self._read_more():
                return self._text[self._at : self._at + 1]

    def _read_more(self) -> bool:
        """Read until the text is twice as long, so that long values are not copied repeatedly.

        Returns whether there was more.
        """
        old_size = size = len(self._text) - self._at
        if old_size > EVENT_LIMIT_BYTES:
            raise TraceError(
                f"not a trace: one event is larger than {EVENT_LIMIT_BYTES >> 20} MiB",
                where=self._source.where,
                hint=HINT_GIVE_TRACE,
            )
        blocks = [self._text[self._at :]]
        while not self._last_block and (size < 2 * old_size or size == old_size):
            block = self._source.read()
            self._last_block = not block
            blocks.append(block)
            size += len(block)
        self._dropped_bytes += self._at
        self._text, self._at = b"".join(blocks), 0
        return size > old_size

    def _damaged(self, reason: str) -> None:
        self.damage = f"{reason} (byte {self._dropped_bytes + self._at:,})"
