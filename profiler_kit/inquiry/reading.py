"""Traces to summaries, file by file; what can't be read is kept as the error that says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler_kit.errors import TraceError
from profiler_kit.records.traces import TraceSummary

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What became of the files: `traces` of those that could be read, `files` theirs, and `errors` of the others.

    `interrupted`: Ctrl-C came; what was read before is here.
    """

    files: tuple[Path, ...]
    traces: tuple[TraceSummary, ...]
    errors: tuple[TraceError, ...] = ()
    interrupted: bool = False


def read_all(files: Sequence[Path], say: Say) -> Read:
    """The summaries of `files`, in their order. Ctrl-C ends it with what was read before.

    Raises TraceError where no file can be read.
    """
    read: list[tuple[Path, TraceSummary]] = []
    errors: list[TraceError] = []
    interrupted = False
    for number, file in enumerate(files, 1):
        say(f"reading {file.name}" if len(files) == 1 else f"reading {file.name} ({number} of {len(files)})")
        try:
            read.append((file, summary(file)))
        except TraceError as error:
            errors.append(error)
        except KeyboardInterrupt:
            interrupted = True
            break
    if errors and not read and not interrupted:
        raise _none_read(errors)
    return Read(
        files=tuple(file for file, _ in read),
        traces=tuple(trace for _, trace in read),
        errors=tuple(errors),
        interrupted=interrupted,
    )


def summary(file: Path) -> TraceSummary:
    """Where the time of the trace in `file` went. Raises TraceError."""
    from profiler_kit.inspection.attribution import own
    from profiler_kit.inspection.summary import summarise
    from profiler_kit.traces.reader import read

    return summarise(own(read(file)))


def _none_read(errors: Sequence[TraceError]) -> TraceError:
    """The error to end with: the only one, or the first with the number of the others."""
    first = errors[0]
    if len(errors) == 1:
        return first
    message = f"{first.message} (and of the other files, {len(errors) - 1}, none can be read either)"
    return TraceError(message, where=first.where, hint=first.hint)
