"""Output: one format on stdout, files by suffix, and the report folder. Files are written completely or not at all."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast, get_args

from profiler_kit.cli import files, streams
from profiler_kit.errors import KitError, UsageError

if TYPE_CHECKING:
    from profiler_kit.pipeline.analyze import Analysis, Traced
    from profiler_kit.records.document import Document
    from profiler_kit.records.lanes import StepTimeline
    from profiler_kit.records.report import Report, TraceReport

CONFIGURATIONS: Final = ("configs", "also", "changes")  # options with names of configurations
REPORT_FILES: Final = ("report.html", "report.json", "report.md", "layers.csv")  # of `analyze`, in its folder
GZIP_LEVEL: Final = 5  # 90 % of the best level's savings in a third of its time
ASCII_SUBSTITUTES = str.maketrans("├│└×±", "||`x~")  # noqa: RUF001 for an ASCII stdout; the width stays the same


def check_options(
    options: argparse.Namespace, *, inputs: Iterable[str | Path] = (), kind: str | None = "report"
) -> None:
    """Raise UsageError, before anything is read or measured, for an option that fails later, or an unusable path.

    That is an unknown format, suffix, column or configuration, and a format that cannot show the `kind` of the result (None:
    it is not known yet). `inputs`: the files that the command reads; no output may replace them. Texts that name no file are
    ignored.
    """
    check_formats(options, kind)
    files.check_outputs(options.output, inputs, hint="use another path with -o")
    names = [name for option in CONFIGURATIONS for name in getattr(options, option, None) or ()]
    if hasattr(options, "configs") and getattr(options, "run", None) is not None:
        names.append(options.run)
    if names:
        from profiler_kit.configurations.naming import check_names

        check_names(names)
    if getattr(options, "sort", None) is not None:
        from profiler_kit.report.tables import check_sort

        # Without --by the report decides which table is shown, so any table's column is accepted here.
        check_sort(options.sort, options.by or "layer")


def check_formats(options: argparse.Namespace, kind: str | None) -> None:
    """Raise UsageError for an unknown format or suffix, or one that cannot show the `kind` of the result; None: any kind."""
    from profiler_kit import render

    requested = [render.renderer_by_name(options.format)] if options.format is not None else []
    for renderer in (*requested, *map(render.renderer_by_suffix, options.output)):
        if kind is not None:
            renderer.require(kind)


def check_folder(folder: Path, option: str) -> None:
    """Raise UsageError if `folder`, the value of `option`, cannot be created or is not writable."""
    from profiler_kit.temporary_files import folder_problem

    problem = folder_problem(folder)
    if problem:
        raise UsageError(problem, where=str(folder), hint=f"use another folder with {option}")


@contextlib.contextmanager
def redirect_stdout_to_stderr() -> Iterator[None]:
    """Redirect stdout to stderr inside the block, for the user's code and its libraries: stdout is reserved for results.

    Afterwards the working directory and the standard streams are usable again, whatever that code did to them.
    """
    with _folder_kept():
        yield from _redirected()


def _redirected() -> Iterator[None]:
    try:
        saved_streams = [(os.dup(number), number) for number in (1, 2)]
    except OSError:  # one is closed
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    sys.stdout.flush()
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        for saved, number in saved_streams:
            os.dup2(saved, number)
            os.close(saved)
        streams.open_standard_streams()


@contextlib.contextmanager
def _folder_kept() -> Iterator[None]:
    """Return to the current working directory after the block: the paths of outputs are relative to it."""
    try:
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # not readable
        yield
        return
    try:
        yield
    finally:
        os.fchdir(folder)
        os.close(folder)


def emit(document: Document, options: argparse.Namespace, page: Path | None = None) -> None:
    """Print `document` in the format of ``-f``, write it to the files of ``-o``, and open its `page` with ``--open``."""
    with errors_at_end() as attempt:
        for file in options.output:
            attempt(write_document, document, file)
        attempt(_print_document, document, options)
    if options.open:
        _open_page(page or _html_file(document, options), options)


def write_document(document: Document, file: Path) -> None:
    """Write `document` to `file` in the format of its suffix. Raises UsageError."""
    from profiler_kit import render

    files.write_file(file, render.renderer_by_suffix(file).render(document, render.RenderOptions(detail=True)))


def _print_document(document: Document, options: argparse.Namespace) -> None:
    from profiler_kit import render

    color = streams.has_color(sys.stdout)
    style = render.RenderOptions(
        width=streams.width(), color=color, detail=options.detail, bars=color and streams.can_draw(sys.stdout)
    )
    with stdout_errors():
        print(_encodable_text(render.renderer_by_name(options.format or "terminal").render(document, style)), end="")


def _html_file(document: Document, options: argparse.Namespace) -> Path:
    """The first HTML file of ``-o``; without one, `document` in a temporary file that stays."""
    from profiler_kit import render

    html = render.renderer_by_name("html")
    for file in options.output:
        if render.renderer_by_suffix(file) is html:
            return Path(file)
    descriptor, name = tempfile.mkstemp(prefix="profiler_kit-", suffix=".html")
    os.close(descriptor)
    files.write_file(Path(name), html.render(document, render.RenderOptions(detail=True)))
    return Path(name)


def _open_page(page: Path, options: argparse.Namespace) -> None:
    if streams.held_output is not None:  # processes that this one starts end with it
        streams.held_output.pages.append(str(page.absolute()))
    else:
        open_in_browser(page, options)


def open_in_browser(page: Path, options: argparse.Namespace) -> None:
    """Open `page` in a browser, and print whether that worked."""
    import webbrowser

    opened = webbrowser.open(page.absolute().as_uri())
    print_note(f"opened {page}" if opened else f"no browser was found: open {page}", options)


def emit_report(report: Report, options: argparse.Namespace, page: Path | None = None) -> None:
    """Emit a report on a target, with the tables that the options select, or one of its findings. `page`: as in `emit`."""
    if options.format == "json" and not (options.output or options.open or _selects_tables(options)):
        from profiler_kit.records.document import Document
        from profiler_kit.records.serde import dumps

        emit(Document(title="", sections=(), json=dumps(report)), options, page)
        return
    from profiler_kit.report import finding_document, report_document

    if options.finding is not None:
        emit(finding_document(report, options.finding), options)
        return
    document = report_document(
        report,
        top=options.top,
        depth=options.depth,
        sort=options.sort,
        run=options.run,
        by=options.by,
        unit=options.unit,
    )
    emit(document, options, page)


def _selects_tables(options: argparse.Namespace) -> bool:
    """Whether an option selects tables or a finding, which a report can lack."""
    names = ("finding", "depth", "sort", "run", "by", "unit")
    return any(getattr(options, name) is not None for name in names)


def draws(options: argparse.Namespace) -> bool:
    """Whether the options request a page with charts."""
    from profiler_kit import render

    html = render.renderer_by_name("html")
    return (
        options.open or options.format == html.name or any(render.renderer_by_suffix(f) is html for f in options.output)
    )


def emit_traces(
    report: TraceReport, options: argparse.Namespace, timelines: Mapping[int, StepTimeline] | None = None
) -> None:
    """Emit a report on traces, or one of its findings. `timelines`: as in `traces_document`.

    Raises UsageError for a view that only target reports have.
    """
    from profiler_kit.records.inspect_options import TraceView
    from profiler_kit.report import finding_document, traces_document

    if options.finding is not None:
        emit(finding_document(report, options.finding), options)
        return
    if options.by is not None and options.by not in get_args(TraceView):
        views = ", ".join(get_args(TraceView))
        raise UsageError(f"a trace report has no view --by {options.by}", hint=f"use one of: {views}")
    emit(traces_document(report, top=options.top, depth=options.depth, by=options.by, timelines=timelines), options)


def flush() -> None:
    """Flush stdout. Raises UsageError if that fails, BrokenPipeError if the reader closed the pipe."""
    with stdout_errors():
        sys.stdout.flush()


def run_final_checks() -> None:
    """Run the checks that the starter of this process requested. Raises KitError."""
    from profiler_kit.process import supervision

    for check in supervision.final_checks:
        check()


@contextlib.contextmanager
def errors_at_end() -> Iterator[Callable[..., None]]:
    """A function that calls another one and postpones its KitError to the end of the block, which raises the last error.

    A file that cannot be written then does not cost the other files, or the report on stdout. Earlier errors are printed.
    """
    errors: list[KitError] = []

    def attempt(function: Callable[..., None], *arguments: object) -> None:
        try:
            function(*arguments)
        except KitError as error:
            errors.append(error)
        except BrokenPipeError:  # the reader of stdout left: reported only with other errors
            if not errors:
                raise
            streams.discard_stdout()

    yield attempt
    for error in errors[:-1]:
        streams.print_message(f"error: {error}")
    if errors:
        raise errors[-1]


@contextlib.contextmanager
def stdout_errors() -> Iterator[None]:
    """Turn an error of stdout inside the block into a UsageError; BrokenPipeError (closed pipe) passes through."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        streams.discard_stdout()
        raise UsageError(
            f"cannot write to stdout: {error.strerror}", hint="write to a file with -o, or free disk space"
        ) from error


def _encodable_text(text: str) -> str:
    """`text` in characters that stdout's encoding has: drawing characters become ASCII, others become escapes if necessary."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(ASCII_SUBSTITUTES).encode(encoding, "backslashreplace").decode(encoding)
    return text


def warn_about_guesses(options: argparse.Namespace, *reports: Report) -> None:
    """Print an assumed model, arguments and inputs on stderr, also with ``--quiet``, unless stdout shows them.

    Every figure depends on them.
    """
    if len(reports) == 1 and options.format in (None, "terminal"):
        return
    for report in reports:
        for note in report.target.notes:
            if note.code in ("guessed", "assumed"):
                streams.print_message(f"warning: {note}")


def print_note(text: str, options: argparse.Namespace) -> None:
    """Print `text` on stderr, except with ``--quiet``."""
    if not options.quiet:
        print(streams.escape_control_characters(text), file=sys.stderr)


def write_report_folder(analysis: Analysis, folder: Path) -> None:
    """Write `REPORT_FILES` into `folder`. Raises UsageError after it has tried all of them."""
    from profiler_kit.report import report_document

    document = report_document(analysis.report, top=None, timeline=analysis.timeline)
    with errors_at_end() as attempt:
        for name in REPORT_FILES:
            attempt(write_document, document, folder / name)


def annotate_traces(analysis: Analysis) -> None:
    """Add lanes to the saved traces. Raises UsageError after it has tried all of them."""
    with errors_at_end() as attempt:
        for traced in analysis.traces:
            attempt(_annotate, traced)


def _annotate(traced: Traced) -> None:
    from profiler_kit.pipeline.annotation import add_annotation
    from profiler_kit.render import chrome_trace

    if traced.annotation.spans:
        with files.replaced_file(traced.file) as partial, json_output(partial, traced.file.suffix == ".gz") as out:
            add_annotation(traced.file, out, traced.annotation, chrome_trace.event_lines)


@contextlib.contextmanager
def json_output(file: Path, zipped: bool) -> Iterator[BinaryIO]:
    """`file`, open for the JSON of a trace, which is compressed if `zipped`."""
    import gzip

    with file.open("wb") as out:
        if not zipped:
            yield out
            return
        # no timestamp and no name: the same trace gives the same bytes
        with gzip.GzipFile("", "wb", compresslevel=GZIP_LEVEL, fileobj=out, mtime=0) as compressed:
            yield cast(BinaryIO, compressed)


def folder_name(target: str) -> str:
    """A folder name for `target`: ``models/net.py:Net`` gives ``net_Net``."""
    path, _, name = target.partition(":")
    stem = Path(path).stem if path.endswith(".py") else path
    return re.sub(r"[^A-Za-z0-9._-]+", "_", f"{stem}_{name}" if name else stem).strip("._") or "target"
