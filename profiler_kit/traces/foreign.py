"""What a file that is no trace seems to be instead, in a few words."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

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


def what_it_is(first: bytes, keys: Collection[str]) -> str | None:
    """What begins with `first`, or is a JSON object with `keys`; None where neither tells."""
    for pattern, what in _BEGINNINGS:
        if re.match(pattern, first):
            return what
    return next((what for needed, what in _DOCUMENTS if needed <= set(keys)), None)
