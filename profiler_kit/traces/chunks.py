"""A trace's document in pieces: runs of whole events, decoded, and the values beside them, in bounded memory.

The document is cut where an event seems to end, and the part before is decoded as a list at once. Where it starts between two
events and is a whole list, its end lies between two events too, so a decoder that succeeds proves the cut. Only what
does not decode so is scanned for where its events end, byte by byte, and decoded one by one.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from profiler_kit.errors import TraceError
from profiler_kit.traces.depth import DepthScan
from profiler_kit.traces.dialect import EVENTS_KEY
from profiler_kit.traces.source import HINT_WHAT, Source

Decoded = TypeVar("Decoded")

# Of one event, or one key's text; the largest seen (a stack of ten thousand frames) has 1 MB.
EVENT_LIMIT_BYTES: Final = 64 << 20
_VALUE_LIMIT_BYTES: Final = 16 << 20  # of a value beside the events that is kept
_MOST_KEYS: Final = 10_000  # of the document; a trace has some ten, and those that its program added
_TRIES: Final = 8
_FIRST_STEP_BYTES: Final = 4 << 10
_LAST_STEP_BYTES: Final = 1 << 20
_LOOK_BACK_BYTES: Final = 512
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_BETWEEN: Final = re.compile(rb"\}\s*(,)\s*\{[^{}]*$")
_KEY: Final = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
NOT_DECODED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Loose(NamedTuple):
    """Events that do not decode as a run: the text of each."""

    texts: list[bytes]


class Document(Generic[Decoded]):
    """The document in `source`. `decode` makes events of a run's text, a JSON list, or raises one of NOT_DECODED.

    While `runs` goes on, `values` fills with the texts of the values beside the events whose key is in `wanted`, and `keys` with
    all keys. Afterwards `cut_off` says whether the document ended early, and `damage` what is no JSON in it, None if all is.
    """

    def __init__(self, source: Source, decode: Callable[[bytes], Decoded], wanted: Collection[str]) -> None:
        self.values: dict[str, bytes] = {}
        self.keys: list[str] = []
        self.lists = 0  # of events
        self.cut_off = False
        self.damage: str | None = None
        self.first = b""  # what the file begins with
        self._source = source
        self._decode = decode
        self._wanted = wanted
        self._text = b""  # what was read last; used up to `_at`
        self._at = 0
        self._dropped_bytes = 0  # before `_text`
        self._last_block = False

    def runs(self) -> Iterator[Decoded | Loose]:
        """The events, in runs that fit in memory, in the file's order.

        Raises: TraceError for an event larger than any trace has.
        """
        begin = self._next_byte()
        while len(self._text) - self._at < len(codecs.BOM_UTF8) and self._more():
            pass
        if self._text.startswith(codecs.BOM_UTF8, self._at):  # as editors on Windows write it
            self._at += len(codecs.BOM_UTF8)
            begin = self._next_byte()
        self.first = self._text[:_LOOK_BACK_BYTES]
        if begin == b"[":
            self._at += 1
            yield from self._list()
        elif begin == b"{":
            self._at += 1
            yield from self._object()
        elif begin:
            self._damaged("it begins with neither an object nor a list")
        if self.damage is None and not self.cut_off and self._next_byte():
            self._damaged("there is more text after its end")
        if self._source.damage:
            self.cut_off = True

    def _object(self) -> Iterator[Decoded | Loose]:
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
                    self._damaged("a key and a colon should stand here")
                else:
                    self.cut_off = True
                return
            self._at += 1
            self.keys.append(key)
            if len(self.keys) > _MOST_KEYS:
                self._damaged(f"more than {_MOST_KEYS:,} keys stand beside each other, which no trace has")
                return
            if key == EVENTS_KEY and self._next_byte() == b"[":
                self._at += 1
                yield from self._list()
            else:
                self._value(key)
            if self.cut_off or self.damage is not None:
                return

    def _key(self) -> str | None:
        while (found := _KEY.match(self._text, self._at)) is None:
            if not self._more():
                return None
        self._at = found.end()
        return found[1].decode("utf-8", errors="replace")

    def _value(self, key: str) -> None:
        """Takes one value, and keeps its text where somebody wants it."""
        kept: list[bytes] = []
        size, step = 0, _FIRST_STEP_BYTES
        scan = DepthScan()
        while True:
            if self._at == len(self._text) and not self._more():
                self.cut_off = True
                return
            part = self._text[self._at : self._at + step]
            commas, close = scan.feed(part)
            end = int(commas[0]) if len(commas) else close
            part = part[:end]
            self._at += len(part)
            size += len(part)
            if key in self._wanted and size <= _VALUE_LIMIT_BYTES:
                kept.append(part)
            if end is not None:
                break
            step = min(2 * step, _LAST_STEP_BYTES)
        if key in self._wanted and size <= _VALUE_LIMIT_BYTES:
            self.values[key] = b"".join(kept)

    def _list(self) -> Iterator[Decoded | Loose]:
        self.lists += 1
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
                    yield Loose(texts)
            if closed:
                return
            if not texts:
                self.cut_off = True
                return

    def _run(self) -> Decoded | None:
        """The events up to the last place where one seems to end, None where that place cannot be proved."""
        if not self._last_block:
            self._more()
        cut = self._seeming_end()
        if cut is None:
            return None
        try:
            events = self._decode(b"".join((b"[", memoryview(self._text)[self._at : cut], b"]")))
        except NOT_DECODED:
            return None
        self._at = cut + 1
        return events

    def _seeming_end(self) -> int | None:
        """The comma before the last event whose "ph" is here: what is before it, is whole."""
        before = len(self._text)
        for _ in range(_TRIES):
            before = self._text.rfind(b'"ph"', self._at, before)
            if before < 0:
                return None
            found = _BETWEEN.search(self._text, max(self._at, before - _LOOK_BACK_BYTES), before)
            if found:
                return found.start(1)
        return None

    def _elements(self) -> tuple[list[bytes], bool]:
        """The text of each whole event here, and whether the list ends after them; reads on until there is one."""
        scan = DepthScan()
        scanned = 0
        while True:
            commas, close = scan.feed(memoryview(self._text)[self._at + scanned :])
            if len(commas) or close is not None:
                break
            scanned = len(self._text) - self._at
            if not self._more():
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
                self._damaged("a list ends with another bracket than it began with")
            self._at = close + 1
        return texts, close is not None

    def _next_byte(self) -> bytes:
        """The next byte that is no space, not yet used; none at the end of the text."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None
            self._at = space.end()
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def _more(self) -> bool:
        """Reads on: twice what is here, so that what has to be whole is not copied again and again."""
        had = size = len(self._text) - self._at
        if had > EVENT_LIMIT_BYTES:
            raise TraceError(
                f"not a trace: one event in it is larger than {EVENT_LIMIT_BYTES >> 20} MiB",
                where=self._source.where,
                hint=HINT_WHAT,
            )
        blocks = [self._text[self._at :]]
        while not self._last_block and (size < 2 * had or size == had):
            block = self._source.read()
            self._last_block = not block
            blocks.append(block)
            size += len(block)
        self._dropped_bytes += self._at
        self._text, self._at = b"".join(blocks), 0
        return size > had

    def _damaged(self, why: str) -> None:
        self.damage = f"{why} (byte {self._dropped_bytes + self._at:,})"
