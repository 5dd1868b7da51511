"""Which collective an event is: its kind, its process group, its size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.communication import message_bytes
from profiler_kit.traces.sparse import GROUP_NAME, GROUP_RANKS, texts_at
from profiler_kit.traces.table import NONE, Ids, Table


class Collective(NamedTuple):
    """What tells one collective from another: `group` is its process group, or what stands for it; `size` in bytes or NONE."""

    kind: str
    group: str
    size: int


def collective_keys(table: Table, rows: Ids, kinds: Sequence[str]) -> tuple[tuple[Collective, ...], Ids]:
    """The different collectives among `rows`, which are of `kinds`, and for each row which of them it is.

    Where the trace does not name a process group, the stream stands for it: each group has a stream of its own in NCCL.
    """
    number: dict[Collective, int] = {}
    of = np.empty(len(rows), np.int32)
    groups = [
        ranks or name
        for ranks, name in zip(texts_at(table, GROUP_RANKS, rows), texts_at(table, GROUP_NAME, rows), strict=True)
    ]
    columns = zip(kinds, groups, message_bytes(table, rows).tolist(), table.stream[rows].tolist(), strict=True)
    for i, (kind, group, size, stream) in enumerate(columns):
        where = group or (f"stream {table.streams[stream].stream}" if stream != NONE else "host")
        of[i] = number.setdefault(Collective(kind, where, size), len(number))
    return tuple(number), of
