"""The document of any saved record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiler_kit.records.check import CheckResult, CheckResults
from profiler_kit.records.comparison import Comparison
from profiler_kit.records.document import Document
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.machine import Machine
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.serde import SavedRecord
from profiler_kit.records.sweeps import Sweep
from profiler_kit.records.trace_comparison import TraceComparison
from profiler_kit.records.tuning import Tuning
from profiler_kit.report.check import check_document, checks_document
from profiler_kit.report.comparison import comparison_document
from profiler_kit.report.document import report_document
from profiler_kit.report.machine import machine_document
from profiler_kit.report.sweeps import sweep_document
from profiler_kit.report.trace_comparison import trace_comparison_document
from profiler_kit.report.traces import traces_document
from profiler_kit.report.tuning import tuning_document


def result_document(
    record: SavedRecord,
    *,
    complete: bool = False,
    run: str | None = None,
    timelines: Mapping[int, StepTimeline] | None = None,
) -> Document:
    """The document of `record`, as the command that wrote it shows it.

    `complete`: tables have all their rows. `run`: the configuration of a report's phases and layers. `timelines`: as in
    `traces_document`.

    Raises: UsageError for an unknown `run`.
    """
    limit: dict[str, Any] = {"top": None} if complete else {}
    match record:
        case Report():
            return report_document(record, run=run, **limit)
        case TraceReport():
            return traces_document(record, timelines=timelines, **limit)
        case Comparison():
            return comparison_document(record, **limit)
        case TraceComparison():
            return trace_comparison_document(record, **limit)
        case CheckResult():
            return check_document(record)
        case CheckResults():
            return checks_document(record)
        case Machine():
            return machine_document(record)
        case Tuning():
            return tuning_document(record)
        case Sweep():
            return sweep_document(record)
