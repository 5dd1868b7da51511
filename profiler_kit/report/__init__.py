"""Report -> neutral tables and sentences. Nothing here knows how they will look."""

from profiler_kit.report.document import report_document
from profiler_kit.report.frames import dataframe

__all__ = ["dataframe", "report_document"]
