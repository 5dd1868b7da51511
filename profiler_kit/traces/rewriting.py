"""A trace file copied event by event, with events of ours before its own and without those that nobody wants."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from profiler_kit.errors import TraceError
from profiler_kit.traces.splitting import Head, Run, split
from profiler_kit.traces.table import Mask


def rewrite(source: Path, out: BinaryIO, ours: Iterable[bytes], keep: Mask) -> int:
    """Writes `source` to `out`, unzipped: `ours` (an event's JSON each) first in its list, then the entries that `keep` marks.

    What is kept stays byte for byte; a file that was cut off ends as a list ought to. Returns how many bytes were written.

    Raises: TraceError where `source` is no trace, or not the one that `keep` was made for.
    """
    at = written = 0
    empty = True  # no event is written yet: the next one takes no comma
    bare, ended = False, False
    for part in split(source):
        if isinstance(part, Head):
            bare = part.bare
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
        written += out.write(b"\n]" if bare else b"\n]\n}")
    return written


def _stretches(run: Run, wanted: Mask) -> list[tuple[int, int]]:
    """Where the run's wanted events stand, neighbours in one piece with the commas between them."""
    changes = np.flatnonzero(np.diff(wanted, prepend=False, append=False))
    return [(int(run.starts[first]), int(run.ends[last - 1])) for first, last in changes.reshape(-1, 2)]
