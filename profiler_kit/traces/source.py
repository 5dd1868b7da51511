"""A path to blocks of the text in it, plain or gzipped, never more than a block at a time."""

from __future__ import annotations

import zlib
from pathlib import Path
from types import TracebackType
from typing import Final

from profiler_kit.errors import TraceError
from profiler_kit.units import text

# With what is made of it, it stays in a core's cache: four times as much takes a tenth longer.
BLOCK_BYTES: Final = 1 << 20
HINT_AGAIN: Final = "record the trace again; a run that was stopped leaves its last file unfinished"
HINT_WHAT: Final = "give a .json or .json.gz file that torch.profiler exported"
_HINT_LIMIT: Final = "pass limit_bytes to read it all the same"

# The largest trace that people report is a few GB. Kineto's text shrinks to a thirtieth, the same step repeated to a hundredth;
# zeros to a thousandth, which is all that deflate can do.
_LIMIT_BYTES: Final = 16 << 30
_LIMIT_RATIO: Final = 400
_RATIO_COUNTS_FROM_BYTES: Final = 64 << 20

_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31  # zlib's way to say: a gzip header, and the largest window
_FILE_BYTES: Final = 1 << 20  # read at once from a compressed file
_PARTS: Final = 32  # that a damaged one is tried in


class Source:
    """The text of the trace at `path` in blocks; gzip is told by the first bytes, not by the name.

    `limit_bytes`: how much text it may hold; by default 16 GiB, and of a gzip file no more than 400 times its size.
    After the last block, `damage` says why the file ended early, None where it did not.

    Raises: TraceError for what cannot be read, is empty, or holds more than the limit.
    """

    def __init__(
        self, path: Path, *, where: str, limit_bytes: int | None = None, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self.where = where
        self.damage: str | None = None
        self.text_bytes = 0
        self._limit_bytes = _LIMIT_BYTES if limit_bytes is None else limit_bytes
        self._limit_ratio = _LIMIT_RATIO if limit_bytes is None else None
        self._block_bytes = block_bytes
        self._file_bytes = 0
        self._compressed = b""
        self._inflate: zlib._Decompress | None = None
        self._sound = True  # as far as it was unzipped
        self._ended = False
        try:
            self._file = path.open("rb", buffering=0)
            self._first = self._file.read(2)
        except OSError as error:
            raise TraceError(f"cannot be read: {error.strerror}", where=where, hint=HINT_WHAT) from error
        if self._first == _GZIP_MAGIC:
            self._inflate = zlib.decompressobj(_GZIP_WINDOW)
            self._compressed, self._first = self._first, b""

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def read(self) -> bytes:
        """The next block; none of its bytes only at the end."""
        if self._ended:
            return b""
        block = self._plain() if self._inflate is None else self._unzipped()
        self.text_bytes += len(block)
        if self.text_bytes > self._limit_bytes:
            held = text(self._limit_bytes, "bytes")
            raise TraceError(f"it holds more than the {held} allowed", where=self.where, hint=_HINT_LIMIT)
        if (
            self._inflate is not None
            and self._limit_ratio is not None
            and self.text_bytes > _RATIO_COUNTS_FROM_BYTES
            and self.text_bytes > self._limit_ratio * self._file_bytes
        ):
            raise TraceError(
                f"it expands to more than {self._limit_ratio} times its size, which no trace does",
                where=self.where,
                hint=_HINT_LIMIT,
            )
        self._ended = not block
        return block

    def _from_file(self, size: int) -> bytes:
        try:
            found = self._file.read(size) or b""
        except OSError as error:
            raise TraceError(f"cannot be read: {error.strerror}", where=self.where, hint=HINT_WHAT) from error
        self._file_bytes += len(found)
        return found

    def _plain(self) -> bytes:
        first, self._first = self._first, b""
        return first + self._from_file(self._block_bytes)

    def _unzipped(self) -> bytes:
        """Members of a gzip file are one text; what follows the last one is padding."""
        assert self._inflate is not None
        while self._sound:
            if not self._compressed:
                self._compressed = self._from_file(_FILE_BYTES)
            if not self._compressed:
                block = b"" if self._inflate.eof else self._inflate.decompress(b"", self._block_bytes)
                if not block and not self._inflate.eof:
                    self.damage = "the gzip stream is cut off or damaged: it ends before its end mark"
                return block
            if self._inflate.eof:
                self._compressed = self._compressed.lstrip(b"\0")
                if not self._compressed:
                    continue
                self._inflate = zlib.decompressobj(_GZIP_WINDOW)
            before = self._inflate.copy()
            try:
                block = self._inflate.decompress(self._compressed, self._block_bytes)
            except zlib.error as error:
                self.damage = f"the gzip stream is cut off or damaged: {error}"
                block = _up_to_damage(before, self._compressed)
                self._compressed = b""
                self._sound = False
                return block
            self._compressed = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if block:
                return block
        return b""


def _up_to_damage(inflate: zlib._Decompress, compressed: bytes) -> bytes:
    """What `compressed` holds before the byte that makes no sense; an error gives nothing of what was before it."""
    found = []
    step = len(compressed)
    while step > 1:
        step = -(-step // _PARTS)
        for at in range(0, len(compressed), step):
            before = inflate.copy()
            try:
                found.append(inflate.decompress(compressed[at : at + step]))
            except zlib.error:
                inflate, compressed = before, compressed[at : at + step]
                break
    return b"".join(found)
