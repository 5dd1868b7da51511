"""Which collective an event is: its kind, its process group, its size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.inspection.communication import message_bytes, texts
from profiler_kit.traces.table import NONE, Ids, Table

_HOST: Final = re.compile(r"\A(gloo|mpi|ucc):")  # ranges in which a backend's own threads ran a collective


class Collective(NamedTuple):
    """What tells one collective from another: `group` is its process group, or what stands for it; `size` in bytes or NONE."""

    kind: str
    group: str
    size: int


def is_host_collective(name: str) -> bool:
    """Whether a range on the host of this name is a collective that ran there."""
    return bool(_HOST.match(name))


def collective_keys(table: Table, rows: Ids, kinds: Sequence[str]) -> tuple[tuple[Collective, ...], Ids]:
    """The different collectives among `rows`, which are of `kinds`, and for each row which of them it is.

    Where the trace does not name a process group, the stream stands for it: each group has a stream of its own in NCCL.
    """
    number: dict[Collective, int] = {}
    of = np.empty(len(rows), np.int32)
    groups = [
        ranks or name
        for ranks, name in zip(
            texts(table, "Process Group Ranks", rows), texts(table, "Process Group Name", rows), strict=True
        )
    ]
    columns = zip(kinds, groups, message_bytes(table, rows).tolist(), table.stream[rows].tolist(), strict=True)
    for i, (kind, group, size, stream) in enumerate(columns):
        where = group or (f"stream {table.streams[stream].stream}" if stream != NONE else "host")
        of[i] = number.setdefault(Collective(kind, where, size), len(number))
    return tuple(number), of
