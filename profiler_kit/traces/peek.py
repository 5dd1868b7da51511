"""Whether a file is a trace, by its beginning alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from profiler_kit.errors import TraceError
from profiler_kit.traces.source import Source

_BLOCK_BYTES: Final = 1 << 16
# What stands before the events (devices, process groups) takes some KB; of a job of thousands of ranks some hundreds.
_BLOCKS: Final = 16
# In a string the quotes would have backslashes before them, so these are keys.
_EVENTS_KEY: Final = re.compile(rb'"traceEvents"\s*:')
_PHASE_KEY: Final = re.compile(rb'"ph"\s*:')
_LIST: Final = re.compile(rb"(\xef\xbb\xbf)?\s*\[\s*\{")


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
