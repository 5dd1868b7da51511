"""The option ``--tensorboard``, and the folder that it writes."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler_kit.cli import files, output
from profiler_kit.errors import TraceError

if TYPE_CHECKING:
    from profiler_kit.records.dashboard import Dashboard
    from profiler_kit.records.lanes import StepTimeline
    from profiler_kit.records.report import Report, TraceReport

FOLDER: Final = "tensorboard"  # in the report folder of `analyze`
WORKER: Final = "worker"  # the plugin expects names with a number
RANKS_RUN: Final = "ranks"
_CONTENT: Final = "scalars, hyperparameters, texts, images and traces for TensorBoard"


def add_tensorboard_option(parser: argparse._ActionsContainer, *, in_report_folder: bool = False) -> None:
    """Add ``--tensorboard``: a flag with `in_report_folder`, else an option with a folder."""
    if in_report_folder:
        parser.add_argument(
            "--tensorboard", action="store_true", help=f"also write {_CONTENT} to {FOLDER}/ in the report folder"
        )
    else:
        parser.add_argument("--tensorboard", type=Path, metavar="DIR", help=f"write {_CONTENT} to this folder")


def check_tensorboard(options: argparse.Namespace) -> None:
    """Raise UsageError if ``--tensorboard`` is set and TensorBoard is missing, or its folder cannot be written."""
    requested = getattr(options, "tensorboard", None)
    if requested:
        from profiler_kit.render.tensorboard import require_tensorboard

        require_tensorboard()
        if isinstance(requested, Path):
            output.check_folder(requested, "--tensorboard")


def write_report(
    report: Report,
    report_folder: Path,
    folder: Path,
    options: argparse.Namespace,
    timeline: StepTimeline | None = None,
) -> None:
    """Write `report`, and the traces of its runs in `report_folder`, to `folder`."""
    from profiler_kit.report.dashboard import report_dashboard

    trace_files = {run.config.name: report_folder / run.trace for run in report.runs if run.trace is not None}
    available = {name: file for name, file in trace_files.items() if file.is_file()}
    if len(available) < len(trace_files):
        missing = next(file for name, file in trace_files.items() if name not in available)
        output.print_note(
            f"{len(trace_files) - len(available)} of {len(trace_files)} traces are missing, such as {missing}", options
        )
    _write(report_dashboard(report, timeline), available, {}, folder, options)


def write_traces(
    report: TraceReport,
    trace_files: Sequence[Path],
    folder: Path,
    options: argparse.Namespace,
    timeline: StepTimeline | None = None,
) -> None:
    """Write `report` and its `trace_files` (none for a saved report) to `folder`."""
    from profiler_kit.report.dashboard import traces_dashboard

    named = {report.name(trace): file for trace, file in zip(report.traces, trace_files, strict=False)}
    ranks = {report.name(trace): trace.rank for trace in report.traces} if report.ranks is not None else {}
    _write(traces_dashboard(report, timeline), named, ranks, folder, options)


def _write(
    dashboard: Dashboard,
    traces: Mapping[str, Path],
    ranks: Mapping[str, int | None],
    folder: Path,
    options: argparse.Namespace,
) -> None:
    """Write `dashboard`, and `traces` by the names of its runs. The traces of `ranks` are the workers of one run."""
    from profiler_kit.pipeline.annotation import write_plugin_trace
    from profiler_kit.render import chrome_trace, tensorboard

    for file in (*folder.glob(f"*/{tensorboard.EVENTS_FILE}"), *folder.glob(f"*/{WORKER}_*{tensorboard.TRACE_SUFFIX}")):
        file.unlink()  # of an earlier report, whose runs may have other names
    for path, content in tensorboard.event_files(dashboard):
        files.write_file(folder / path, content)
    folders = tensorboard.run_folders(dashboard)
    for number, (name, trace) in enumerate(traces.items()):
        rank = ranks.get(name)
        place = f"{RANKS_RUN}/{WORKER}_{number if rank is None else rank}" if ranks else f"{folders[name]}/{WORKER}_0"
        try:
            with (
                files.replaced_file(folder / f"{place}{tensorboard.TRACE_SUFFIX}") as partial,
                partial.open("wb") as out,
            ):
                write_plugin_trace(trace, out, chrome_trace.event_lines)
        except TraceError as error:
            output.print_note(f"no trace of {name} for TensorBoard: {error}", options)
    output.print_note(f"wrote {folder}: tensorboard --logdir {shlex.quote(str(folder))}", options)
