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
    numbers = np.unique(number)
    blocks, first_index, present = np.unique(numbers // _BLOCK, return_index=True, return_counts=True)
    lowest, highest = numbers[first_index], numbers[first_index + present - 1]
    thread_number = np.unique(thread, return_inverse=True)[1]
    threads = int(thread_number.max()) + 1
    entered = np.full(threads, np.iinfo(np.int64).max)
    left = np.full(threads, np.iinfo(np.int64).min)
    np.minimum.at(entered, thread_number, block)
    np.maximum.at(left, thread_number, block)
    start = np.where(np.isin(blocks, entered), lowest, blocks * _BLOCK)
    end = np.where(np.isin(blocks, left), highest, blocks * _BLOCK + _BLOCK - 1)
    return int((end - start + 1 - present).sum())
