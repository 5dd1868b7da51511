"""The command `show`: render a saved report in any format."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from profiler_kit import errors
from profiler_kit.cli import output, tensorboard
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import add_finding_option, add_output_options, add_table_options
from profiler_kit.records.inspect_options import TraceView


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the report and the options of output and tables."""
    parser.add_argument(
        "report",
        type=Path,
        metavar="REPORT",
        help="report.json, report folder, or any other JSON file that a command wrote with -o",
    )
    add_output_options(parser)
    tensorboard.add_tensorboard_option(parser)
    add_finding_option(parser)
    add_table_options(parser, trace_views=get_args(TraceView))


def run(options: argparse.Namespace) -> int:
    """Show any JSON file that a command wrote. Raises UsageError for a view that this kind of file does not have."""
    from profiler_kit.pipeline.reports import with_verdict
    from profiler_kit.records.report import Report, TraceReport
    from profiler_kit.records.saved import kind_words
    from profiler_kit.records.serde import read_saved

    output.check_options(options, inputs=[options.report], kind=None)
    tensorboard.check_tensorboard(options)
    saved = read_saved(options.report)
    output.check_formats(options, saved.kind)
    if isinstance(saved, TraceReport):
        output.emit_traces(with_verdict(saved), options)
        if options.tensorboard:
            tensorboard.write_traces(with_verdict(saved), (), options.tensorboard, options)
    elif isinstance(saved, Report):
        output.emit_report(with_verdict(saved), options)
        if options.tensorboard:
            folder = options.report if options.report.is_dir() else options.report.parent
            tensorboard.write_report(with_verdict(saved), folder, options.tensorboard, options)
    else:
        from profiler_kit.report.results import result_document

        if options.finding is not None:
            raise errors.UsageError(f"{kind_words(saved.kind)} has no findings", hint="omit --finding")
        if options.by is not None:
            raise errors.UsageError(f"{kind_words(saved.kind)} has no views", hint="omit --by")
        if options.tensorboard:
            raise errors.UsageError(f"{kind_words(saved.kind)} has no form for TensorBoard", hint="omit --tensorboard")
        output.emit(result_document(saved), options)
    return errors.OK


COMMAND = Command(
    name="show",
    summary="render a saved report in any format, without torch",
    examples=("show profiler_kit_out/my_model -f markdown",),
    add_options=add_options,
    run=run,
    runs_user_code=False,
)
