"""Report -> neutral tables and sentences, independent of any output format."""

from profiler_kit.report.document import report_document
from profiler_kit.report.finding import finding_document
from profiler_kit.report.frames import dataframe
from profiler_kit.report.machine import machine_document
from profiler_kit.report.traces import traces_document

__all__ = ["dataframe", "finding_document", "machine_document", "report_document", "traces_document"]
