"""The part of the pipeline where `traces` meets `inspection`: which files, each to its summary, and again for who asks."""

from profiler_kit.inquiry.files import trace_files
from profiler_kit.inquiry.inspected import Inspection
from profiler_kit.inquiry.reading import Read, read_all, summary

__all__ = ["Inspection", "Read", "read_all", "summary", "trace_files"]
