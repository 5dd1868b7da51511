"""The part of the pipeline where `traces` meets `inspection`: which files, each to its summary, and again for who asks."""

from profiler_kit.inquiry.annotated import Annotated, annotate_trace, check_steps
from profiler_kit.inquiry.exported import export_events
from profiler_kit.inquiry.files import TraceFiles, trace_files
from profiler_kit.inquiry.inspected import Inspection
from profiler_kit.inquiry.reading import Read, read_all, summary

__all__ = [
    "Annotated",
    "Inspection",
    "Read",
    "TraceFiles",
    "annotate_trace",
    "check_steps",
    "export_events",
    "read_all",
    "summary",
    "trace_files",
]
