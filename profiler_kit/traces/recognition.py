"""Whether a file is a trace, by its beginning alone, and what a file that is none seems to be instead."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from profiler_kit.errors import TraceError
from profiler_kit.traces.dialect import EVENTS_KEY
from profiler_kit.traces.source import Source

_BLOCK_BYTES: Final = 1 << 16
# What stands before the events (devices, process groups) takes some KB; of a job of thousands of ranks some hundreds.
_BLOCKS: Final = 16
# In a string the quotes would have backslashes before them, so these are keys.
_EVENTS_KEY: Final = re.compile(f'"{EVENTS_KEY}"\\s*:'.encode())
_PHASE_KEY: Final = re.compile(rb'"ph"\s*:')
_LIST: Final = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*\{")
# what a file begins with -> what it is
_BEGINNINGS: Final = (
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
# keys of a document -> what it is
_DOCUMENTS: Final = (
    ({"device_traces"}, "a memory snapshot of torch.cuda.memory"),
    ({"segments"}, "a memory snapshot of torch.cuda.memory"),
    ({"schema", "nodes"}, "an execution trace of ExecutionTraceObserver, which has no times on a device"),
    ({"kind", "schema"}, "a file of profiler_kit: use `profiler_kit show`"),
    ({"schema", "tool"}, "a report of profiler_kit: use `profiler_kit show`"),
    ({"nodes", "start_time", "end_time"}, "a V8 CPU profile"),
    ({"$schema", "profiles"}, "a profile of speedscope"),
    ({"nbformat"}, "a Jupyter notebook"),
)


def seems_trace(path: Path) -> bool:
    """Whether `path`, gzipped or not, has a ``traceEvents`` in its first MB, or is a list of objects with a ``ph``.

    True for a file that can't be opened too: whoever reads it says why.
    """
    seen = b""
    try:
        with Source(path, where=str(path), block_bytes=_BLOCK_BYTES) as source:
            for _ in range(_BLOCKS):
                block = source.read()
                seen += block
                if _EVENTS_KEY.search(seen) or (_LIST.match(seen) and _PHASE_KEY.search(seen)):
                    return True
                if not block:
                    return False
    except TraceError:
        return True
    return False


def identify(first: bytes, keys: Collection[str]) -> str | None:
    """What begins with `first`, or is a JSON object with `keys`; None where neither tells."""
    for pattern, what in _BEGINNINGS:
        if re.match(pattern, first):
            return what
    return next((what for needed, what in _DOCUMENTS if needed <= set(keys)), None)
