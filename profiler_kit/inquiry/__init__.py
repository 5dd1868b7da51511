"""The part of the pipeline where `traces` meets `inspection`: which files, each to its summary, and again for who asks."""

from profiler_kit.inquiry.annotated import Annotated, annotate_trace
from profiler_kit.inquiry.exported import export_events
from profiler_kit.inquiry.files import trace_files
from profiler_kit.inquiry.inspected import Inspection
from profiler_kit.inquiry.reading import Read, read_all, summary

__all__ = [
    "Annotated",
    "Inspection",
    "Read",
    "annotate_trace",
    "export_events",
    "read_all",
    "summary",
    "trace_files",
]
