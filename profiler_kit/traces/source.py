"""Read a file, plain or gzipped, in blocks of text of bounded size."""

from __future__ import annotations

import threading
import zlib
from pathlib import Path
from types import TracebackType
from typing import Final

from profiler_kit.errors import TraceError
from profiler_kit.units import text

# A block and the data made of it fit in a core's cache. Four times the size takes a tenth longer.
BLOCK_BYTES: Final = 1 << 20
HINT_RECORD_AGAIN: Final = "record the trace again; a run that is stopped early leaves an incomplete file"
HINT_GIVE_TRACE: Final = "give a .json or .json.gz file that torch.profiler exported"
_HINT_LIMIT: Final = "pass a larger limit_bytes to read it anyway"

# The largest reported traces have a few GB. Kineto's text compresses to a thirtieth, the same step repeated to a
# hundredth. Deflate's limit is a thousandth, for zeros.
_LIMIT_BYTES: Final = 16 << 30
_LIMIT_RATIO: Final = 400
_RATIO_MIN_BYTES: Final = 64 << 20

_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31  # for zlib: a gzip header, and the largest window
_FILE_BYTES: Final = 1 << 20  # size of one read from a compressed file
_BISECTION_PARTS: Final = 32  # parts of a damaged block in each step of the search for the damage


class Source:
    """The text of the trace at `path` in blocks. A gzip file is recognized by its first bytes, not by its name.

    `limit_bytes`: the limit on the size of the text; the default is 16 GiB, and for a gzip file 400 times its size.
    A gzip file is unzipped one block ahead, in a thread. After the last block, `damage` is the reason why the file ended early,
    or None.

    Raises: TraceError for a file that cannot be read, or that exceeds the limit.
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
        self._fault: str | None = None  # the damage that the thread has found
        self._ahead: threading.Thread | None = None
        self._next: bytes | TraceError = b""
        self._ended = False
        try:
            self._file = path.open("rb", buffering=0)
            self._first = self._file.read(2)
        except OSError as error:
            raise TraceError(f"cannot be read: {error.strerror}", where=where, hint=HINT_GIVE_TRACE) from error
        if self._first == _GZIP_MAGIC:
            self._inflate = zlib.decompressobj(_GZIP_WINDOW)
            self._compressed, self._first = self._first, b""

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self._ahead is not None:
            self._ahead.join()
        self._file.close()

    def read(self) -> bytes:
        """Return the next block; empty at the end."""
        if self._ended:
            return b""
        block = self._plain() if self._inflate is None else self._unzipped_ahead()
        self.text_bytes += len(block)
        if self.text_bytes > self._limit_bytes:
            limit = text(self._limit_bytes, "bytes")
            raise TraceError(f"the text is larger than the limit of {limit}", where=self.where, hint=_HINT_LIMIT)
        if (
            self._inflate is not None
            and self._limit_ratio is not None
            and self.text_bytes > _RATIO_MIN_BYTES
            and self.text_bytes > self._limit_ratio * self._file_bytes
        ):
            raise TraceError(
                f"the gzip file expands to more than {self._limit_ratio} times its size, which no trace does",
                where=self.where,
                hint=_HINT_LIMIT,
            )
        self._ended = not block
        return block

    @property
    def is_plain(self) -> bool:
        """Whether the file is not compressed."""
        return self._inflate is None

    def skip_to(self, offset: int) -> None:
        """Continue at `offset` of a plain file."""
        self._file.seek(offset)
        self._first, self._ended, self.text_bytes = b"", False, offset

    def _from_file(self, size: int) -> bytes:
        try:
            data = self._file.read(size) or b""
        except OSError as error:
            raise TraceError(f"cannot be read: {error.strerror}", where=self.where, hint=HINT_GIVE_TRACE) from error
        self._file_bytes += len(data)
        return data

    def _plain(self) -> bytes:
        first, self._first = self._first, b""
        return first + self._from_file(self._block_bytes)

    def _unzipped_ahead(self) -> bytes:
        """Return the next block, and start a thread for the one after it: zlib does not hold the lock of the interpreter."""
        if self._ahead is None:
            self._unzip_next()
        else:
            self._ahead.join()
        block, self.damage = self._next, self._fault
        if isinstance(block, TraceError):
            raise block
        if block:
            self._ahead = threading.Thread(target=self._unzip_next)
            self._ahead.start()
        return block

    def _unzip_next(self) -> None:
        try:
            self._next = self._unzipped()
        except TraceError as error:
            self._next = error

    def _unzipped(self) -> bytes:
        """Return the next block of a gzip file. Its members form one text; zeros after the last one are padding."""
        assert self._inflate is not None
        while self._fault is None:
            if not self._compressed:
                self._compressed = self._from_file(_FILE_BYTES)
            if not self._compressed:
                block = b"" if self._inflate.eof else self._inflate.decompress(b"", self._block_bytes)
                if not block and not self._inflate.eof:
                    self._fault = "the gzip stream is cut off or damaged: it ends before its end mark"
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
                self._fault = f"the gzip stream is cut off or damaged: {error}"
                block = _inflate_until_damage(before, self._compressed)
                self._compressed = b""
                return block
            self._compressed = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if block:
                return block
        return b""


def _inflate_until_damage(inflate: zlib._Decompress, compressed: bytes) -> bytes:
    """Return the text in `compressed` before the damaged byte.

    On an error, zlib returns none of it, so it is located by bisection.
    """
    parts = []
    step = len(compressed)
    while step > 1:
        step = -(-step // _BISECTION_PARTS)
        for at in range(0, len(compressed), step):
            before = inflate.copy()
            try:
                parts.append(inflate.decompress(compressed[at : at + step]))
            except zlib.error:
                inflate, compressed = before, compressed[at : at + step]
                break
    return b"".join(parts)
