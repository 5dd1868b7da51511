"""Recognition of traces by the start of a file, and of other files that are given by mistake."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from profiler_kit.errors import TraceError
from profiler_kit.traces.dialect import EVENTS_KEY
from profiler_kit.traces.source import Source

_BLOCK_BYTES: Final = 1 << 16
# The part before the events (devices, process groups) has some KB, and some hundreds for a job of thousands of ranks.
_MAX_BLOCKS: Final = 16
# Inside a string, the quotes would be escaped, so these are keys.
_EVENTS_KEY: Final = re.compile(f'"{EVENTS_KEY}"\\s*:'.encode())
_PHASE_KEY: Final = re.compile(rb'"ph"\s*:')
_LIST: Final = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*\{")
# pattern at the start of a file -> description of the file
_FILE_STARTS: Final = (
    (rb"\x80[\x02-\x05]", "a pickle, such as torch.cuda.memory._dump_snapshot writes: open it at pytorch.org/memory_viz"),
    (rb"PK\x03\x04", "a zip archive, such as torch.save writes: unpack it, or give the trace itself"),
    (rb"SQLite format 3\x00", "an SQLite database, such as Nsight Systems exports"),
    (rb"(?s).{8,40}brain\.Event:", "a TensorBoard event file"),
    (rb"\(\xb5/\xfd", "compressed by zstd: unpack it first"),
    (rb"BZh[1-9]", "compressed by bzip2: unpack it first"),
    (rb"\xfd7zXZ\x00", "compressed by xz: unpack it first"),
    (rb"\xff\xfe|\xfe\xff", "text in UTF-16: save it as UTF-8"),
    (rb"(?i)\s*<(!doctype html|html|head|script)", "an HTML page"),
    (rb"(?i)\s*<(\?xml|svg)", "an XML document"),
    (rb"\s*\[\s*\[\s*-?\d+,\s*\d+,\s*\d+,\s*-?\d+\s*\]", "a raw memory timeline of export_memory_timeline"),
    (rb"\s*\[\s*\[\s*-?\d+(\.\d+)?,", "a memory timeline of export_memory_timeline"),
    (rb"[^\n{}\[\]\"]+;[^\n{}\[\]\"]+ \d+\r?\n", "the folded stacks of export_stacks"),
)  # fmt: skip
# keys of a document -> description of the file
_DOCUMENT_KEYS: Final = (
    ({"device_traces"}, "a memory snapshot of torch.cuda.memory"),
    ({"segments"}, "a memory snapshot of torch.cuda.memory"),
    ({"schema", "nodes"}, "an execution trace of ExecutionTraceObserver, which has no times on a device"),
    ({"kind", "schema"}, "a file of profiler_kit: `profiler-kit show` renders it"),
    ({"schema", "tool"}, "a report of profiler_kit: `profiler-kit show` renders it"),
    ({"nodes", "start_time", "end_time"}, "a V8 CPU profile"),
    ({"$schema", "profiles"}, "a profile of speedscope"),
    ({"nbformat"}, "a Jupyter notebook"),
)


def looks_like_trace(path: Path) -> bool:
    """Return whether `path`, gzipped or not, looks like a trace.

    A trace has a ``traceEvents`` in its first MB, or is a list of objects with a ``ph``.

    Returns True for a file that cannot be opened. Reading it raises the error.
    """
    start = b""
    try:
        with Source(path, where=str(path), block_bytes=_BLOCK_BYTES) as source:
            for _ in range(_MAX_BLOCKS):
                block = source.read()
                start += block
                if _EVENTS_KEY.search(start) or (_LIST.match(start) and _PHASE_KEY.search(start)):
                    return True
                if not block:
                    return False
    except TraceError:
        return True
    return False


def identify(first: bytes, keys: Collection[str]) -> str | None:
    """Return a description of a file that begins with `first`, or of a JSON object with `keys`; None if unknown."""
    for pattern, description in _FILE_STARTS:
        if re.match(pattern, first):
            return description
    return next((description for required, description in _DOCUMENT_KEYS if required <= set(keys)), None)
