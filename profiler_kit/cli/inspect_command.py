"""The verb `inspect`: traces in, where their time went out."""

from __future__ import annotations

import argparse
import sys
from typing import get_args

from profiler_kit import errors
from profiler_kit.cli import inspect_files, output, streams
from profiler_kit.cli.progress import Progress
from profiler_kit.records.document import Document
from profiler_kit.records.report import TraceReport
from profiler_kit.records.trace_asks import TraceView


def inspect(given: argparse.Namespace) -> int:
    """Reads traces and says where the time went. A file that can't be read is named on stderr; the others are told."""
    from profiler_kit.pipeline.inspect import inspect

    output.check(given)
    inspect_files.check(given)
    with Progress(quiet=given.quiet) as progress:
        inspection = inspect(given.traces, say=progress.say)
    if not inspection.interrupted:
        inspect_files.check_read(inspection.files, inspection.traces, given)
    for error in inspection.errors:
        print(f"error: {streams.printable(str(error))}", file=sys.stderr)
    if not inspection.traces:  # interrupted before the first one was read
        raise KeyboardInterrupt
    if given.events != inspect_files.STDOUT:
        output.emit(traces_shown(inspection.report, given), given)
    if not inspection.interrupted and inspect_files.asked(given):
        inspect_files.write(inspection.files, given)
    if inspection.interrupted:
        print("interrupted: the report holds the traces that were read before", file=sys.stderr)
        return errors.INTERRUPTED
    return max((error.exit_code for error in inspection.errors), default=errors.OK)


def traces_shown(report: TraceReport, given: argparse.Namespace) -> Document:
    """`report` as the options ask for it. Raises UsageError for a view that only reports on targets have."""
    from profiler_kit.report import traces_document

    if given.by is not None and given.by not in get_args(TraceView):
        views = ", ".join(get_args(TraceView))
        raise errors.UsageError(f"a report on traces has no view by {given.by}", hint=f"one of: {views}")
    return traces_document(report, top=given.top, depth=given.depth, by=given.by)
