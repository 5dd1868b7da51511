"""What `inspect` writes beside its report: annotated traces, and events as tables. Files are written whole or not at all."""

from __future__ import annotations

import argparse
import gzip
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, cast

from profiler_kit.cli import output
from profiler_kit.cli.progress import Progress
from profiler_kit.errors import UsageError
from profiler_kit.records.trace_asks import EVENT_SUFFIXES, EventFormat
from profiler_kit.records.traces import TraceSummary

STDOUT: Final = Path("-")
TRACE_SUFFIX: Final = ".annotated.json.gz"
_SMALL_LEVEL: Final = 5  # of gzip: nine tenths of what the best saves, in a third of the time
_TRACE_SUFFIXES: Final = (".gz", ".json", ".trace", ".pt")


def check(given: argparse.Namespace) -> None:
    """Raises UsageError now for options that make no sense together or places that can't be written."""
    if given.annotate is None and (given.steps is not None or given.max_mb is not None):
        raise UsageError("--steps and --max-mb say how to cut an annotated trace", hint="add --annotate OUT.json.gz")
    for asked in (given.annotate, given.events):
        if asked is not None and asked != STDOUT and not asked.absolute().parent.is_dir():
            raise UsageError("no such folder", where=str(asked.parent), hint="make it first, or write elsewhere")
    if given.annotate is not None and given.annotate.is_file() and any(_same(given.annotate, t) for t in given.traces):
        raise UsageError("is the trace itself", where=str(given.annotate), hint="write the annotated one elsewhere")
    if given.events is not None and not given.events.is_dir() and given.events != STDOUT:
        _table_format(given.events, given.to)
    if given.events == STDOUT and given.to not in (None, "csv"):
        raise UsageError(f"{given.to} is no text for stdout", hint="name a file with --events")


def check_read(files: Sequence[Path], traces: Sequence[TraceSummary], given: argparse.Namespace) -> None:
    """Raises UsageError for what the traces that were read show to make no sense, before anything is said of them."""
    from profiler_kit.pipeline.annotation import check_steps

    if given.annotate is not None:
        tuple(_places(files, given.annotate, TRACE_SUFFIX))
    if given.events is not None:
        tuple(_places(files, given.events, ""))
    if given.steps is not None:
        for trace in traces:
            check_steps(trace, given.steps)


def asked(given: argparse.Namespace) -> bool:
    """Whether files beside the report are asked for."""
    return given.annotate is not None or given.events is not None or given.to is not None


def write(files: Sequence[Path], given: argparse.Namespace) -> None:
    """Writes what is asked for of the traces in `files`, and says on stderr what was written."""
    for file, to in _places(files, given.annotate, TRACE_SUFFIX) if given.annotate is not None else ():
        _annotated(file, to, given)
    if given.events is not None or given.to is not None:
        suffix = f".events.{given.to or 'csv'}"
        for file, to in _places(files, given.events if given.events is not None else Path(), suffix):
            _events(file, to, given)


def _annotated(file: Path, to: Path, given: argparse.Namespace) -> None:
    from profiler_kit.pipeline.annotation import annotate_trace
    from profiler_kit.render import chrome_trace

    limit = given.max_mb * 1_000_000 if given.max_mb is not None else None
    with Progress(quiet=given.quiet) as progress, output.whole(to) as partial, partial.open("wb") as out:
        progress.say(f"annotating {file.name}")
        if to.suffix == ".gz":
            # mtime and no name: the same trace gives the same bytes
            with gzip.GzipFile("", "wb", compresslevel=_SMALL_LEVEL, fileobj=out, mtime=0) as zipped:
                done = annotate_trace(
                    file, cast(BinaryIO, zipped), chrome_trace.lines, steps=given.steps, limit_bytes=limit
                )
        else:
            done = annotate_trace(file, out, chrome_trace.lines, steps=given.steps, limit_bytes=limit)
    output.note(f"wrote {to} ({done.size_bytes / 1e6:,.1f} MB of JSON)", given)
    for told in done.notes:
        output.note(f"  {told}", given)


def _events(file: Path, to: Path, given: argparse.Namespace) -> None:
    from profiler_kit.pipeline.event_export import export_events

    with Progress(quiet=given.quiet) as progress:
        progress.say(f"reading the events of {file.name}")
        if to == STDOUT:
            with output.stdout_told():
                # whatever the terminal's own encoding and line ends: it is a file that is piped
                out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors="backslashreplace", newline="")
                try:
                    export_events(file, out, "csv")
                    out.flush()
                finally:
                    out.detach()
            return
        with output.whole(to) as partial:
            count = export_events(file, partial, _table_format(to, given.to))
    output.note(f"wrote {to} ({count:,} events)", given)


def _places(files: Sequence[Path], to: Path, suffix: str) -> Iterator[tuple[Path, Path]]:
    """Each file and where what is made of it goes: `to` itself, or in the folder `to` a file named like the trace."""
    if to == STDOUT or not to.is_dir():
        if len(files) > 1:
            raise UsageError(
                f"{len(files)} traces do not go into one file", where=str(to), hint="name a folder that is there"
            )
        yield files[0], to
        return
    taken: set[str] = set()
    for file in files:
        stem = file.name
        while Path(stem).suffix in _TRACE_SUFFIXES:
            stem = Path(stem).stem
        name, number = stem, 2
        while name in taken:
            name, number = f"{stem}_{number}", number + 1
        taken.add(name)
        yield file, to / f"{name}{suffix}"


def _table_format(file: Path, wanted: EventFormat | None) -> EventFormat:
    found = EVENT_SUFFIXES.get(file.suffix.lower())
    if wanted is not None and found is not None and wanted != found:
        raise UsageError(f"--to {wanted}, but the name says {found}", where=str(file), hint="leave one of both out")
    if wanted is None and found is None:
        choices = ", ".join(EVENT_SUFFIXES)
        raise UsageError("the name says no format", where=str(file), hint=f"end it in one of {choices}, or add --to")
    return wanted or found or "csv"


def _same(file: Path, trace: str) -> bool:
    return Path(trace).exists() and file.samefile(trace)
