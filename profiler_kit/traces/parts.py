"""Parts of a large trace file, which other processes decode.

A file is cut where the text looks like the end of an event. A part that is a list of whole values between two brackets proves its
end, if its start is right; the first one starts at the list. So the result is that of reading the file in one piece.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from profiler_kit.errors import KitError
from profiler_kit.traces.chunks import Document, without_garbage_collection
from profiler_kit.traces.event_runs import Run
from profiler_kit.traces.rows import Rows
from profiler_kit.traces.source import BLOCK_BYTES, Source

PART_BYTES: Final = 64 << 20  # at least; a process takes a seventh of a second to start
_WINDOW_BYTES: Final = 64 << 10  # searched for the end of an event
_BETWEEN_EVENTS: Final = re.compile(rb'\}\s*(,)\s*\{[^{}]*"ph"')


class Part(NamedTuple):
    """The text of a file from `start` up to `end`, where a comma between two events is. `details`: see `read`."""

    path: Path
    start: int
    end: int
    details: bool


# Returns the answer of `read_part` for each part, in order, or the error of a process that ended.
ReadParts = Callable[[Sequence[Part]], Iterable[Rows | KitError | None]]


def parts_of(path: Path, start: int, *, details: bool) -> list[Part]:
    """Return the parts of the event list that begins at `start`, without the text after the last cut."""
    cuts = [start]
    with contextlib.suppress(OSError), path.open("rb") as file:
        length = path.stat().st_size - start - 2 * _WINDOW_BYTES
        count = length // PART_BYTES
        for i in range(1, count + 1):
            at = start + i * length // count
            file.seek(at)
            match = _BETWEEN_EVENTS.search(file.read(_WINDOW_BYTES))
            if match is not None:
                cuts.append(at + match.start(1) + 1)
    return [Part(path, begin, end - 1, details) for begin, end in itertools.pairwise(cuts)]


class _Section(Source):
    """The text of a part, as a list between brackets."""

    def __init__(self, part: Part) -> None:
        super().__init__(part.path, where=str(part.path))
        self._blocks = self._texts(part)

    def read(self) -> bytes:
        return next(self._blocks, b"")

    def _texts(self, part: Part) -> Iterator[bytes]:
        self.skip_to(part.start)
        yield b"["
        for at in range(part.start, part.end, BLOCK_BYTES):
            yield self._from_file(min(BLOCK_BYTES, part.end - at))
        yield b"]"


@without_garbage_collection()
def read_part(part: Part) -> Rows | None:
    """Return the columns of the events in a part; None if it is not a list of whole events."""
    rows = Rows(details=part.details)
    with _Section(part) as source:
        document: Document[Run] = Document(source, rows.decode, ())
        for run in document.runs():
            rows.add(run)
    is_whole = document.damage is None and not document.cut_off
    return rows if is_whole and rows.is_usual else None
