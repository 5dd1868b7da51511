"""Traces to summaries, many at once; what can't be read is kept as the error that says why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler_kit.errors import KitError, TraceError
from profiler_kit.process import in_processes, workers_for
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.ranks import Ranks
from profiler_kit.records.traces import TraceSummary

if TYPE_CHECKING:
    from profiler_kit.attribution.extract import Extract


UNPACKED: Final = 15  # times the size of a .gz: traces repeat themselves
# A process with the package and numpy, and what one holds of a trace's text at its peak (columns, not the text itself).
BASE_BYTES: Final = 90_000_000
TEXT_SHARE: Final = 1.0
# Text that is read while processes would still be starting.
WORTH_BYTES: Final = 30_000_000
TOLD: Final = 20  # lines of progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What became of the files: `traces` of those that could be read, `files` theirs, and `errors` of the others.

    `ranks`: the traces beside each other, where they are several ranks of one job, else None and, where they seem to be ranks,
    the reason in `notes`. `interrupted`: Ctrl-C came; what was read before is here.
    """

    files: tuple[Path, ...]
    traces: tuple[TraceSummary, ...]
    errors: tuple[TraceError, ...] = ()
    ranks: Ranks | None = None
    notes: tuple[str, ...] = ()
    interrupted: bool = False


def read_all(files: Sequence[Path], say: OnProgress) -> Read:
    """The summaries of `files`, in their order, and their ranks. Ctrl-C ends it with what was read before.

    Raises TraceError where no file can be read.
    """
    read: list[tuple[Path, Extract]] = []
    errors: list[TraceError] = []
    interrupted = False
    try:
        for file, answer in zip(files, _answers(files, say), strict=True):
            if isinstance(answer, KitError):
                errors.append(_of_file(answer, file))
            else:
                read.append((file, answer))
    except KeyboardInterrupt:
        interrupted = True
    if errors and not read and not interrupted:
        raise _none_read(errors)
    ranks = _ranks([one for _, one in read])
    return Read(
        files=tuple(file for file, _ in read),
        traces=tuple(one.summary for _, one in read),
        errors=tuple(errors),
        ranks=ranks if ranks is not None and ranks.ranks else None,
        notes=ranks.notes if ranks is not None and not ranks.ranks else (),
        interrupted=interrupted,
    )


def summary(file: Path) -> TraceSummary:
    """Where the time of the trace in `file` went. Raises TraceError."""
    return contribution(file).summary


def contribution(file: Path) -> Extract:
    """What the trace in `file` contributes to a report on many: its summary, and what its rank did. Raises TraceError."""
    from profiler_kit.attribution.engine import attribute
    from profiler_kit.attribution.extract import extract
    from profiler_kit.traces.reader import read

    table = read(file)
    attribution = attribute(table)
    return extract(attribution)


def _answers(files: Sequence[Path], say: OnProgress) -> Iterator[Extract | KitError]:
    """What comes of each file: here for a few small ones, else in as many processes as cores and memory allow."""
    sizes = [_text_bytes(file) for file in files]
    workers = workers_for(len(files), BASE_BYTES + int(TEXT_SHARE * max(sizes, default=0)))
    if workers < 2 or sum(sizes) < WORTH_BYTES:
        for number, file in enumerate(files, 1):
            say(f"reading {file.name}" if len(files) == 1 else f"reading {file.name} ({number} of {len(files)})")
            yield _tried(file)
        return
    say(f"reading {len(files)} traces in {workers} processes")
    every = max(1, len(files) // TOLD)
    for number, answer in enumerate(in_processes(contribution, files, workers=workers), 1):
        if number % every == 0:
            say(f"read {number} of {len(files)} traces")
        yield answer


def _tried(file: Path) -> Extract | TraceError:
    try:
        return contribution(file)
    except TraceError as error:
        return error


def _text_bytes(file: Path) -> int:
    """About how much text a file holds; 0 for one that is not there any more, which reading will say."""
    try:
        size = file.stat().st_size
    except OSError:
        return 0
    return size * UNPACKED if file.name.endswith(".gz") else size


def _ranks(read: Sequence[Extract]) -> Ranks | None:
    if len(read) < 2:
        return None
    from profiler_kit.attribution.ranks import ranks_of

    return ranks_of(read)


def _of_file(error: KitError, file: Path) -> TraceError:
    """A process that died says nothing of the file that it was at."""
    if isinstance(error, TraceError):
        return error
    return TraceError(error.message, where=str(file), hint=error.hint)


def _none_read(errors: Sequence[TraceError]) -> TraceError:
    """The error to end with: the only one, or the first with the number of the others."""
    first = errors[0]
    if len(errors) == 1:
        return first
    message = f"{first.message} (and of the other files, {len(errors) - 1}, none can be read either)"
    return TraceError(message, where=first.where, hint=first.hint)
