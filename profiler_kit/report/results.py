"""The document of a saved result of `compare`, `check` or `env`."""

from __future__ import annotations

from profiler_kit.records.comparison import CheckResult, Comparison
from profiler_kit.records.document import Document
from profiler_kit.records.machine import Machine
from profiler_kit.records.trace_comparison import TraceComparison
from profiler_kit.report.comparison import check_document, comparison_document
from profiler_kit.report.machine import machine_document
from profiler_kit.report.trace_comparison import trace_comparison_document


def result_document(answer: Comparison | TraceComparison | CheckResult | Machine) -> Document:
    """The document of `answer`, as the verb that wrote it showed it."""
    match answer:
        case Comparison():
            return comparison_document(answer)
        case TraceComparison():
            return trace_comparison_document(answer)
        case CheckResult():
            return check_document(answer)
        case Machine():
            return machine_document(answer)
