"""The verb `inspect`: traces in, where their time went out. Files beside the report are written whole or not at all."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast, get_args

from profiler_kit import errors
from profiler_kit.cli import output, streams
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import add_output_options
from profiler_kit.cli.progress import Progress
from profiler_kit.cli.values import positive, step_range, whole
from profiler_kit.errors import UsageError
from profiler_kit.records.trace_asks import EVENT_SUFFIXES, EventFormat, TraceView

if TYPE_CHECKING:
    from profiler_kit.records.traces import TraceSummary

STDOUT: Final = Path("-")
ANNOTATED_SUFFIX: Final = ".annotated.json.gz"
GZIP_LEVEL: Final = 5  # saves nine tenths as much as the best, in a third of the time
TRACE_SUFFIXES: Final = (".gz", ".json", ".trace", ".pt")


def add_options(sub: argparse.ArgumentParser) -> None:
    """Adds the traces, the tables that are shown, and the files beside the report."""
    sub.add_argument(
        "traces", nargs="+", metavar="TRACE",
        help="a trace that torch.profiler wrote (.json, .json.gz), or a folder of traces: one file, several of one program, "
        "or one per rank",
    )  # fmt: skip
    group = sub.add_argument_group("tables")
    group.add_argument(
        "--by", choices=get_args(TraceView),
        help="one view of the device's time, whole, instead of the summary; also what CSV holds (default: summary; CSV: phase)",
    )  # fmt: skip
    group.add_argument("--top", type=positive, default=10, metavar="N", help="rows of a table (default: 10)")
    group.add_argument(
        "--depth", type=whole, metavar="N", help="levels of the tree of modules (default: as many as fit a screen)"
    )
    group = sub.add_argument_group("files beside the report")
    group.add_argument(
        "--annotate", type=Path, metavar="OUT",
        help="the trace with lanes of phases, modules, idle causes and kernel families, and counters, for Perfetto and "
        "chrome://tracing: a .json.gz, a .json or a folder",
    )  # fmt: skip
    group.add_argument(
        "--steps", type=step_range, metavar="FIRST:LAST", help="only these steps of the annotated trace, both included"
    )
    group.add_argument(
        "--max-mb", type=positive, metavar="N",
        help="as many steps of the annotated trace as fit N MB of JSON; viewers open no more than some hundreds",
    )  # fmt: skip
    group.add_argument(
        "--to", choices=get_args(EventFormat),
        help="the table of events in this format, as TRACE.events.FORMAT unless --events says where",
    )  # fmt: skip
    group.add_argument(
        "--events", type=Path, metavar="FILE",
        help=f"the table of events, each with its owners: a file ({', '.join(EVENT_SUFFIXES)}), a folder (with --to), or - "
        "for CSV on stdout in place of the report",
    )  # fmt: skip
    add_output_options(sub)


def run(options: argparse.Namespace) -> int:
    """Reads the traces and shows where the time went. A file that can't be read is named on stderr; the others are shown."""
    from profiler_kit.pipeline.inspect import inspect

    output.check(options)
    _check(options)
    with Progress(quiet=options.quiet) as progress:
        inspection = inspect(options.traces, say=progress.say)
    if not inspection.interrupted:
        _check_read(inspection.files, inspection.traces, options)
    for error in inspection.errors:
        print(f"error: {streams.printable(str(error))}", file=sys.stderr)
    if not inspection.traces:  # interrupted before the first one was read
        raise KeyboardInterrupt
    if options.events != STDOUT:
        output.emit_traces(inspection.report, options)
    if not inspection.interrupted:
        _write_files(inspection.files, options)
    if inspection.interrupted:
        print("interrupted: the report holds the traces that were read before", file=sys.stderr)
        return errors.INTERRUPTED
    return max((error.exit_code for error in inspection.errors), default=errors.OK)


def _check(options: argparse.Namespace) -> None:
    """Raises UsageError for options that make no sense together or places that can't be written, before a trace is read."""
    if options.annotate is None and (options.steps is not None or options.max_mb is not None):
        raise UsageError("--steps and --max-mb say how to cut an annotated trace", hint="add --annotate OUT.json.gz")
    for place in (options.annotate, options.events):
        if place is not None and place != STDOUT and not place.absolute().parent.is_dir():
            raise UsageError("no such folder", where=str(place.parent), hint="make it first, or write elsewhere")
    out = options.annotate
    if out is not None and out.is_file() and any(_same(out, trace) for trace in options.traces):
        raise UsageError("is the trace itself", where=str(out), hint="write the annotated one elsewhere")
    if options.events is not None and not options.events.is_dir() and options.events != STDOUT:
        _table_format(options.events, options.to)
    if options.events == STDOUT and options.to not in (None, "csv"):
        raise UsageError(f"{options.to} cannot go to stdout", hint="name a file with --events")


def _check_read(files: Sequence[Path], traces: Sequence[TraceSummary], options: argparse.Namespace) -> None:
    """Raises UsageError for options that do not fit the traces, once these are read and before anything is shown."""
    from profiler_kit.pipeline.annotation import check_steps

    if options.annotate is not None:
        tuple(_places(files, options.annotate, ANNOTATED_SUFFIX))
    if options.events is not None:
        tuple(_places(files, options.events, ""))
    if options.steps is not None:
        for trace in traces:
            check_steps(trace, options.steps)


def _write_files(files: Sequence[Path], options: argparse.Namespace) -> None:
    """Writes the files asked for beside the report, and names them on stderr."""
    for file, to in _places(files, options.annotate, ANNOTATED_SUFFIX) if options.annotate is not None else ():
        _write_annotated(file, to, options)
    if options.events is not None or options.to is not None:
        suffix = f".events.{options.to or 'csv'}"
        for file, to in _places(files, options.events if options.events is not None else Path(), suffix):
            _write_events(file, to, options)


def _write_annotated(file: Path, to: Path, options: argparse.Namespace) -> None:
    import gzip

    from profiler_kit.pipeline.annotation import annotate_trace
    from profiler_kit.render import chrome_trace

    limit = options.max_mb * 1_000_000 if options.max_mb is not None else None
    with Progress(quiet=options.quiet) as progress, output.whole(to) as partial, partial.open("wb") as out:
        progress.say(f"annotating {file.name}")
        if to.suffix == ".gz":
            # mtime and no name: the same trace gives the same bytes
            with gzip.GzipFile("", "wb", compresslevel=GZIP_LEVEL, fileobj=out, mtime=0) as zipped:
                annotated = annotate_trace(
                    file, cast(BinaryIO, zipped), chrome_trace.lines, steps=options.steps, limit_bytes=limit
                )
        else:
            annotated = annotate_trace(file, out, chrome_trace.lines, steps=options.steps, limit_bytes=limit)
    output.note(f"wrote {to} ({annotated.size_bytes / 1e6:,.1f} MB of JSON)", options)
    for note in annotated.notes:
        output.note(f"  {note}", options)


def _write_events(file: Path, to: Path, options: argparse.Namespace) -> None:
    import io

    from profiler_kit.pipeline.event_export import export_events

    with Progress(quiet=options.quiet) as progress:
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
            count = export_events(file, partial, _table_format(to, options.to))
    output.note(f"wrote {to} ({count:,} events)", options)


def _places(files: Sequence[Path], to: Path, suffix: str) -> Iterator[tuple[Path, Path]]:
    """Each trace and the file to write for it: `to` itself, or in the folder `to` a file named like the trace."""
    if to == STDOUT or not to.is_dir():
        if len(files) > 1:
            raise UsageError(
                f"{len(files)} traces do not go into one file", where=str(to), hint="name an existing folder"
            )
        yield files[0], to
        return
    used_names: set[str] = set()
    for file in files:
        stem = file.name
        while Path(stem).suffix in TRACE_SUFFIXES:
            stem = Path(stem).stem
        name, number = stem, 2
        while name in used_names:
            name, number = f"{stem}_{number}", number + 1
        used_names.add(name)
        yield file, to / f"{name}{suffix}"


def _table_format(file: Path, to: EventFormat | None) -> EventFormat:
    by_suffix = EVENT_SUFFIXES.get(file.suffix.lower())
    if to is not None and by_suffix is not None and to != by_suffix:
        raise UsageError(
            f"--to {to} and the file name's {by_suffix} differ", where=str(file), hint="leave one of both out"
        )
    if to is None and by_suffix is None:
        raise UsageError(
            "cannot infer a format from the file name",
            where=str(file),
            hint=f"end it in one of {', '.join(EVENT_SUFFIXES)}, or add --to",
        )
    return to or by_suffix or "csv"


def _same(file: Path, trace: str) -> bool:
    return Path(trace).exists() and file.samefile(trace)


COMMAND = Command(
    name="inspect",
    summary="any torch.profiler trace: where its time went, and what was waited for",
    examples=("inspect trace.json.gz", "inspect rank*.json.gz --by module"),
    add_options=add_options,
    run=run,
)
