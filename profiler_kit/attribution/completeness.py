"""Host events that a trace lacks because its file was filtered.

The profiler numbers operators and ranges (``External id``) as they begin. Each thread takes blocks of 512 numbers; profilers of
2021 number all threads together. So the numbers between the first and the last event of a trace are complete, up to the ends
of the blocks that a thread enters first and leaves last. Missing numbers are events that were removed from the file.

**Source**: ``ThreadLocalSubqueue::begin_op`` in torch/csrc/profiler/collection.cpp.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler_kit.traces.table import Kind, Table

_BLOCK: Final = 512


def missing_host_events(table: Table) -> int:
    """Return the number of operators and ranges that were recorded and are not in the trace."""
    is_numbered = ((table.kind == Kind.OPERATOR) | (table.kind == Kind.ANNOTATION)) & (table.external > 0)
    if not is_numbered.any():
        return 0
    number, thread = table.external[is_numbered] - 1, table.thread[is_numbered]
    block = number // _BLOCK
    thread_starts = np.flatnonzero(np.diff(thread, prepend=-2))  # few: the rows of a thread are mostly adjacent
    entered: dict[int, int] = {}
    left: dict[int, int] = {}
    lows, highs = np.minimum.reduceat(block, thread_starts), np.maximum.reduceat(block, thread_starts)
    for owner, low, high in zip(thread[thread_starts].tolist(), lows.tolist(), highs.tolist(), strict=True):
        entered[owner] = min(low, entered.get(owner, low))
        left[owner] = max(high, left.get(owner, high))
    number.sort(kind="stable")  # linear, as the numbers mostly ascend
    number = number[np.diff(number, prepend=-1) > 0]
    first_index = np.flatnonzero(np.diff(number // _BLOCK, prepend=-1))
    present = np.diff(first_index, append=len(number))
    lowest, highest = number[first_index], number[first_index + present - 1]
    blocks = lowest // _BLOCK
    start = np.where(np.isin(blocks, list(entered.values())), lowest, blocks * _BLOCK)
    end = np.where(np.isin(blocks, list(left.values())), highest, blocks * _BLOCK + _BLOCK - 1)
    return int((end - start + 1 - present).sum())
