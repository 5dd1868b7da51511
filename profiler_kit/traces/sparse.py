"""Columns that few events have, `Table.more`: the keys of those that are asked for by name, and their values at rows."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler_kit.traces.table import NONE, Ids, Ints, Table

# As Kineto writes them; `dialect` gives what other writers called these the same keys.
CALL_STACK: Final = "Call stack"
COLLECTIVE_NAME: Final = "Collective name"
GROUP_NAME: Final = "Process Group Name"
GROUP_RANKS: Final = "Process Group Ranks"
DTYPE: Final = "dtype"
IN_ELEMENTS: Final = "In msg nelems"
ALLOCATED: Final = "Total Allocated"
RESERVED: Final = "Total Reserved"
DEVICE_TYPE: Final = "Device Type"
DEVICE_ID: Final = "Device Id"

HOST_TYPE: Final = 0  # of DEVICE_TYPE: c10::DeviceType::CPU


def numbers_at(table: Table, key: str, rows: Ids) -> Ints:
    """The whole numbers of the column `key` at `rows`, NONE where a row has none."""
    sparse = table.more.get(key)
    if sparse is None or sparse.texts or not len(sparse.rows):
        return np.full(len(rows), NONE, dtype=np.int64)
    at = np.minimum(np.searchsorted(sparse.rows, rows), len(sparse.rows) - 1)
    return np.where(sparse.rows[at] == rows, sparse.values[at], NONE).astype(np.int64)


def texts_at(table: Table, key: str, rows: Ids) -> list[str]:
    """The texts of the column `key` at `rows`, "" where a row has none."""
    sparse = table.more.get(key)
    if sparse is None or not len(sparse.rows):
        return [""] * len(rows)
    at = np.minimum(np.searchsorted(sparse.rows, rows), len(sparse.rows) - 1)
    has = sparse.rows[at] == rows
    return [
        sparse.texts[int(value)] if here and 0 <= int(value) < len(sparse.texts) else ""
        for here, value in zip(has.tolist(), sparse.values[at].tolist(), strict=True)
    ]
