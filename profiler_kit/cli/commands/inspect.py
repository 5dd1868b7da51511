"""The command `inspect`: report where the time of traces goes, and write annotated traces and event tables."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from profiler_kit import errors
from profiler_kit.cli import files, output, streams, tensorboard
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import add_finding_option, add_output_options
from profiler_kit.cli.progress import Progress
from profiler_kit.cli.values import parse_non_negative, parse_positive, parse_step_range
from profiler_kit.errors import UsageError
from profiler_kit.records.inspect_options import EVENT_SUFFIXES, EventFormat, TraceView

if TYPE_CHECKING:
    from profiler_kit.pipeline.inspect import Inspection
    from profiler_kit.records.traces import TraceSummary

ExtraFile = tuple[Callable[[Path, Path, argparse.Namespace], None], Path, Path]

STDIN: Final = files.STDIN
STDIN_NAME: Final = "stdin"  # of the trace in the report
STDOUT: Final = Path("-")
ANNOTATED_SUFFIX: Final = ".annotated.json.gz"
ANNOTATED_SUFFIXES: Final = (".gz", ".json")
TRACE_SUFFIXES: Final = (".gz", ".json", ".trace", ".pt")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the traces and the options of tables, additional files and output."""
    parser.add_argument(
        "traces", nargs="+", metavar="TRACE",
        help="trace file of torch.profiler (.json, .json.gz), a folder of traces, or - for standard input; several traces may "
        "be the ranks of one distributed job",
    )  # fmt: skip
    group = parser.add_argument_group("tables")
    group.add_argument(
        "--by", choices=get_args(TraceView),
        help="show one complete table of the device time instead of the summary (default: summary; phase for CSV)",
    )  # fmt: skip
    group.add_argument(
        "--top", type=parse_positive, default=10, metavar="N", help="maximum number of rows in a table (default: 10)"
    )
    group.add_argument(
        "--depth", type=parse_non_negative, metavar="N",
        help="maximum depth of the module tree (default: what fits on a screen)",
    )  # fmt: skip
    group = parser.add_argument_group("additional files")
    group.add_argument(
        "--annotate", type=Path, metavar="OUT",
        help="write the trace with additional lanes (phases, modules, idle causes, kernel families) and counters, for "
        "Perfetto and chrome://tracing: a .json.gz file, a .json file or a folder",
    )  # fmt: skip
    group.add_argument(
        "--steps", type=parse_step_range, metavar="FIRST:LAST",
        help="cut the annotated trace to these steps, both ends included",
    )  # fmt: skip
    group.add_argument(
        "--max-mb", type=parse_positive, metavar="N",
        help="cut the annotated trace to the steps that fit into N MB of JSON; viewers open at most a few hundred MB",
    )  # fmt: skip
    group.add_argument(
        "--to", choices=get_args(EventFormat),
        help="write the event table in this format, to TRACE.events.FORMAT or to the path of --events",
    )  # fmt: skip
    group.add_argument(
        "--events", type=Path, metavar="FILE",
        help="write the event table, with step, phase and module of each event: a file "
        f"({', '.join(EVENT_SUFFIXES)}), a folder (with --to), or - for CSV on stdout instead of the report",
    )  # fmt: skip
    tensorboard.add_tensorboard_option(group)
    add_output_options(parser)
    add_finding_option(parser)


def run(options: argparse.Namespace) -> int:
    """Read the traces and show where the time goes. Files that cannot be read are listed on stderr."""
    from profiler_kit.pipeline.inspect import inspect

    tensorboard.check_tensorboard(options)
    inputs = _inputs(options.traces)
    output.check_options(options, inputs=inputs)
    _check_options(options, inputs)
    with contextlib.ExitStack() as stack:
        traces = options.traces
        names: dict[Path, str] = {}
        if STDIN in traces:
            copy = stack.enter_context(streams.stdin_copy())
            names[copy] = STDIN_NAME
            traces = [copy if trace == STDIN else trace for trace in traces]
        with Progress(quiet=options.quiet) as progress:
            timelines = bool(options.tensorboard) or (output.draws(options) and options.by is None)
            inspection = inspect(traces, names=names, on_progress=progress.show, timelines=timelines)
        return _report(inspection, options)


def _report(inspection: Inspection, options: argparse.Namespace) -> int:
    """Show the report, write the files that the options request, and return the exit code."""
    extra_files = [] if inspection.interrupted else _extra_files(inspection.files, options)
    if not inspection.interrupted:
        _check_steps(inspection.traces, options)
    files.check_outputs([path for _, _, path in extra_files if path != STDOUT], inspection.files)
    for error in inspection.errors:
        streams.print_message(f"error: {error}")
    if not inspection.traces:  # interrupted before the first trace was read
        raise KeyboardInterrupt
    with output.errors_at_end() as attempt:
        if options.events != STDOUT:
            attempt(output.emit_traces, inspection.report, options, inspection.timelines)
        for write, trace, path in extra_files:
            attempt(write, trace, path, options)
        if options.tensorboard and not inspection.interrupted:
            timeline = inspection.timelines.get(0)
            attempt(
                tensorboard.write_traces, inspection.report, inspection.files, options.tensorboard, options, timeline
            )
    if inspection.interrupted:
        print("interrupted: the report contains the traces that were read", file=sys.stderr)
        return errors.INTERRUPTED
    return max((error.exit_code for error in inspection.errors), default=errors.OK)


def _inputs(traces: Sequence[str]) -> list[str | Path]:
    """The files that the command reads; also those in folders."""
    from profiler_kit.pipeline.trace_files import trace_files

    named = [trace for trace in traces if trace != STDIN]
    return [*traces, *(trace_files(named).files if named else ())]


def _check_options(options: argparse.Namespace, inputs: Sequence[str | Path]) -> None:
    """Raise UsageError for options that contradict each other or paths that are not writable, before a trace is read."""
    if options.annotate is None and (options.steps is not None or options.max_mb is not None):
        raise UsageError("--steps and --max-mb need --annotate", hint="add --annotate OUT.json.gz")
    annotated = options.annotate
    if annotated is not None and not annotated.is_dir() and annotated.suffix not in ANNOTATED_SUFFIXES:
        raise UsageError(
            "an annotated trace is JSON",
            where=str(annotated),
            hint="use the suffix .json.gz or .json, or an existing folder",
        )
    paths = [path for path in (*options.output, annotated, options.events) if path is not None and path != STDOUT]
    files.check_outputs([path for path in paths if not path.is_dir()], inputs)
    if STDIN not in options.traces:
        extra_files = _extra_files([file for file in inputs if isinstance(file, Path)], options)
        files.check_outputs([path for _, _, path in extra_files if path != STDOUT], inputs)
    if options.events is not None and not options.events.is_dir() and options.events != STDOUT:
        _event_format(options.events, options.to)
    if options.events == STDOUT and options.to not in (None, "csv"):
        raise UsageError(f"cannot write {options.to} to stdout", hint="give a file with --events, or use --to csv")


def _check_steps(traces: Sequence[TraceSummary], options: argparse.Namespace) -> None:
    """Raise UsageError for steps that a trace does not have, before anything is shown."""
    from profiler_kit.pipeline.annotation import check_steps

    if options.steps is not None:
        for trace in traces:
            check_steps(trace, options.steps)


def _extra_files(traces: Sequence[Path], options: argparse.Namespace) -> list[ExtraFile]:
    """The annotated traces and event tables that the options request: the function that writes it, the trace, and the path."""
    annotated = _output_paths(traces, options.annotate, ANNOTATED_SUFFIX) if options.annotate is not None else ()
    extra_files: list[ExtraFile] = [(_write_annotated, trace, path) for trace, path in annotated]
    if options.events is not None or options.to is not None:
        folder_or_file = options.events if options.events is not None else Path()
        for trace, path in _output_paths(traces, folder_or_file, f".events.{options.to or 'csv'}"):
            extra_files.append((_write_events, trace, path))
    return extra_files


def _write_annotated(file: Path, output_path: Path, options: argparse.Namespace) -> None:
    from profiler_kit.pipeline.annotation import annotate_trace
    from profiler_kit.render import chrome_trace

    limit = options.max_mb * 1_000_000 if options.max_mb is not None else None
    with (
        Progress(quiet=options.quiet) as progress,
        files.replaced_file(output_path) as partial,
        output.json_output(partial, output_path.suffix == ".gz") as out,
    ):
        progress.show(f"annotating {file.name}")
        annotated = annotate_trace(file, out, chrome_trace.event_lines, steps=options.steps, limit_bytes=limit)
    output.print_note(f"wrote {output_path} ({annotated.size_bytes / 1e6:,.1f} MB of JSON)", options)
    for note in annotated.notes:
        output.print_note(f"  {note}", options)


def _write_events(file: Path, output_path: Path, options: argparse.Namespace) -> None:
    import io

    from profiler_kit.pipeline.annotation import export_events

    with Progress(quiet=options.quiet) as progress:
        progress.show(f"reading events of {file.name}")
        if output_path == STDOUT:
            with output.stdout_errors():
                # UTF-8 and \n regardless of the terminal's settings, because the output is a CSV file
                out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors="backslashreplace", newline="")
                try:
                    export_events(file, out, "csv")
                    out.flush()
                finally:
                    out.detach()
            return
        with files.replaced_file(output_path) as partial:
            count = export_events(file, partial, _event_format(output_path, options.to))
    output.print_note(f"wrote {output_path} ({count:,} events)", options)


def _output_paths(traces: Sequence[Path], destination: Path, suffix: str) -> Iterator[tuple[Path, Path]]:
    """Each trace with the file to write for it: `destination`, or in a folder `destination` a file named after the trace."""
    if destination == STDOUT or not destination.is_dir():
        if len(traces) > 1:
            raise UsageError(
                f"cannot write {len(traces)} traces into one file",
                where=str(destination),
                hint="give an existing folder",
            )
        yield traces[0], destination
        return
    used_names: set[str] = set()
    for file in traces:
        stem = file.name
        while Path(stem).suffix in TRACE_SUFFIXES:
            stem = Path(stem).stem
        name, number = stem, 2
        while name in used_names:
            name, number = f"{stem}_{number}", number + 1
        used_names.add(name)
        yield file, destination / f"{name}{suffix}"


def _event_format(file: Path, requested: EventFormat | None) -> EventFormat:
    by_suffix = EVENT_SUFFIXES.get(file.suffix.lower())
    if requested is not None and by_suffix is not None and requested != by_suffix:
        raise UsageError(
            f"--to {requested} contradicts the file's suffix ({by_suffix})",
            where=str(file),
            hint="omit --to, or change the suffix",
        )
    if requested is None and by_suffix is None:
        raise UsageError(
            "cannot infer a format from the file name",
            where=str(file),
            hint=f"use one of the suffixes {', '.join(EVENT_SUFFIXES)}, or add --to",
        )
    return requested or by_suffix or "csv"


COMMAND = Command(
    name="inspect",
    summary="read any torch.profiler trace and report where its time goes",
    examples=("inspect trace.json.gz", "inspect rank*.json.gz --by module"),
    add_options=add_options,
    run=run,
    runs_user_code=False,
)
