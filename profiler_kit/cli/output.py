"""Where documents go: stdout in one format, files by suffix, the report folder. Files are written whole or not at all."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from profiler_kit.cli import streams
from profiler_kit.errors import UsageError

if TYPE_CHECKING:
    from profiler_kit.pipeline.analyze import Analysis
    from profiler_kit.records.document import Document
    from profiler_kit.records.report import Report, TraceReport

DEFAULT_WIDTH = 100
PLAIN = str.maketrans("├│×±", "||x~")  # noqa: RUF001 for a stdout that knows only ASCII, each as wide as before


def check(options: argparse.Namespace) -> None:
    """Raises UsageError now for a format, suffix, column or place that can't be, rather than after a minute of measuring."""
    from profiler_kit import render
    from profiler_kit.report.tables import check_sort

    if options.format is not None:
        render.by_name(options.format)
    for file in options.output:
        render.by_suffix(file)
        if not file.parent.is_dir():
            raise UsageError("no such folder", where=str(file.parent), hint="make it first, or write elsewhere with -o")
        if file.is_dir() or not os.access(file.parent, os.W_OK):
            raise UsageError("cannot be written", where=str(file), hint="write elsewhere with -o")
    if getattr(options, "sort", None) is not None:
        # Without --by it depends on the report which table is meant: a name that some table has will do for now.
        check_sort(options.sort, options.by or "layer")
    out = getattr(options, "out", None)
    if out is not None:
        _check_place(out)


def _check_place(folder: Path) -> None:
    """Raises UsageError where `folder` is not there and can't be made, or can't be written into."""
    there = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        raise UsageError(
            "cannot be written: it is no folder" if there == folder else f"cannot be made: {there} is no folder",
            where=str(folder),
            hint="give another folder with --out",
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(
            "cannot be written: permission denied", where=str(folder), hint="give another folder with --out"
        )


@contextlib.contextmanager
def foreign_output_on_stderr() -> Iterator[None]:
    """While it lasts, whatever the user's code and the libraries below it print goes to stderr: stdout is for results."""
    try:
        kept = os.dup(1)
    except OSError:  # no stdout at all
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    sys.stdout.flush()
    try:
        with contextlib.suppress(OSError):  # no stderr
            os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def emit(document: Document, options: argparse.Namespace) -> None:
    """Prints `document` in the asked format and writes it to the asked files."""
    from profiler_kit import render

    for file in options.output:
        write(file, render.by_suffix(file).render(document, render.RenderOptions(detail=True)))
    live = sys.stdout.isatty()
    style = render.RenderOptions(
        width=min(shutil.get_terminal_size().columns, 160) if live else DEFAULT_WIDTH,
        color=live and "NO_COLOR" not in os.environ,
        detail=options.detail,
    )
    with stdout_told():
        print(_encodable(render.by_name(options.format or "terminal").render(document, style)), end="")


def emit_report(report: Report, options: argparse.Namespace) -> None:
    """Emits a report on a target, as the table options ask for it."""
    from profiler_kit.report import report_document

    document = report_document(
        report,
        top=options.top,
        depth=options.depth,
        sort=options.sort,
        run=options.run,
        by=options.by,
        unit=options.unit,
    )
    emit(document, options)


def emit_traces(report: TraceReport, options: argparse.Namespace) -> None:
    """Emits a report on traces. Raises UsageError for a view that only reports on targets have."""
    from profiler_kit.records.trace_asks import TraceView
    from profiler_kit.report import traces_document

    if options.by is not None and options.by not in get_args(TraceView):
        views = ", ".join(get_args(TraceView))
        raise UsageError(f"a report on traces has no view by {options.by}", hint=f"one of: {views}")
    emit(traces_document(report, top=options.top, depth=options.depth, by=options.by), options)


def flush() -> None:
    """Writes out what stdout still holds. Raises UsageError where that can't be done, BrokenPipeError where nobody reads."""
    with stdout_told():
        sys.stdout.flush()


@contextlib.contextmanager
def stdout_told() -> Iterator[None]:
    """While it lasts, an error of stdout ends in one of ours: UsageError, or BrokenPipeError where nobody reads."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        streams.to_nowhere()
        raise UsageError(
            f"stdout cannot be written: {error.strerror}", hint="write to a file with -o, or make room"
        ) from error


def _encodable(text: str) -> str:
    """`text` as stdout's encoding can hold it: its own drawing in ASCII, other characters as escapes where need be."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text


def warn(*reports: Report) -> None:
    """Says on stderr, even to those who asked for quiet, what makes every figure doubtful: guessed inputs."""
    for report in reports:
        if report.target.inputs_from == "guess":
            for text in report.target.notes:
                if "GUESSED" in text:
                    print(f"warning: {text.removeprefix('warning: ')}", file=sys.stderr)


def note(text: str, options: argparse.Namespace) -> None:
    """Says `text` on stderr unless asked to be quiet."""
    if not options.quiet:
        print(text, file=sys.stderr)


def write_report_folder(analysis: Analysis, folder: Path) -> None:
    """Writes report.json, report.md, layers.csv and annotates the traces that lie in ``folder/traces``."""
    from profiler_kit import render
    from profiler_kit.render import chrome_trace
    from profiler_kit.report import report_document

    document = report_document(analysis.report, top=None)
    options = render.RenderOptions(detail=True)
    for name in ("report.json", "report.md", "layers.csv"):
        write(folder / name, render.by_suffix(Path(name)).render(document, options))
    for traced in analysis.traces:
        write(traced.file, chrome_trace.annotate(traced.file.read_bytes(), traced.spans))


def write(file: Path, content: str | bytes) -> None:
    """Writes `file` whole, or leaves what was there. Raises UsageError where that can't be done."""
    with whole(file) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def whole(file: Path) -> Iterator[Path]:
    """A file to write that becomes `file` when all is well, and is gone if not. Raises UsageError where that can't be done."""
    partial = ""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        os.close(descriptor)
        yield Path(partial)
        Path(partial).chmod(0o666 & ~_umask())
        Path(partial).replace(file)
        partial = ""
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=str(file), hint="give another place") from error
    finally:  # also after Ctrl-C
        if partial:
            Path(partial).unlink(missing_ok=True)


def slug(target: str) -> str:
    """A folder name for `target`: ``models/net.py:Net`` gives ``net_Net``."""
    path, _, name = target.partition(":")
    stem = Path(path).stem if path.endswith(".py") else path
    return re.sub(r"[^A-Za-z0-9._-]+", "_", f"{stem}_{name}" if name else stem).strip("._") or "target"


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
