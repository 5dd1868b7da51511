"""Which collective an event is: its kind, its process group, its size."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.traces.table import NONE, Ids, Table

_NAMES: Final = (  # longer names before those that they contain
    ("all_reduce", r"all_?reduce"),
    ("reduce_scatter", r"reduce_?scatter"),
    ("all_gather", r"all_?gather"),
    ("all_to_all", r"all_?to_?all"),
    ("broadcast", r"broadcast"),
    ("send_recv", r"send_?recv|\bsend\b|\brecv\b"),
    ("barrier", r"barrier"),
    ("gather", r"gather"),
    ("scatter", r"scatter"),
    ("reduce", r"reduce"),
)
_KINDS: Final = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _NAMES)
_HOST: Final = re.compile(r"\A(gloo|mpi|ucc):")  # ranges in which a backend's own threads ran a collective


class Collective(NamedTuple):
    """What tells one collective from another: `group` is its process group, or what stands for it; `size` as written."""

    kind: str
    group: str
    size: str


def kind_of(name: str) -> str:
    """The kind of collective that `name`, a kernel's, a range's or the profiler's own word, tells of; ``other`` for none."""
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), "other")


def is_host_collective(name: str) -> bool:
    """Whether a range on the host of this name is a collective that ran there."""
    return bool(_HOST.match(name))


def collective_keys(table: Table, rows: Ids) -> tuple[tuple[Collective, ...], Ids]:
    """The different collectives among `rows`, and for each row which of them it is.

    Where the trace does not name a process group, the stream (on a host, the range's name) stands for it: each group
    has a stream of its own in NCCL.
    """
    said = [_column(table, rows, key) for key in ("Collective name", "Process Group Ranks", "Process Group Name")]
    sizes = [_column(table, rows, key) for key in ("In msg nelems", "Out msg nelems", "dtype")]
    number: dict[Collective, int] = {}
    seen: dict[tuple[int | str, ...], int] = {}
    of = np.empty(len(rows), np.int32)
    names, streams = table.name[rows].tolist(), table.stream[rows].tolist()
    for i, (name, stream, *words) in enumerate(zip(names, streams, *said, *sizes, strict=True)):
        what = (name, stream, *words)
        if what not in seen:
            told, ranks, group, *size = words
            where = ranks or group or (f"stream {table.streams[stream].stream}" if stream != NONE else "host")
            key = Collective(kind_of(told or table.names[name]), where, " ".join(filter(None, size)))
            seen[what] = number.setdefault(key, len(number))
        of[i] = seen[what]
    return tuple(number), of


def _column(table: Table, rows: Ids, key: str) -> list[str]:
    """What the column called `key` says of each row; "" where nothing."""
    sparse = table.more.get(key)
    if sparse is None or not len(sparse.rows):
        return [""] * len(rows)
    index = np.minimum(np.searchsorted(sparse.rows, rows), len(sparse.rows) - 1)
    there = sparse.rows[index] == rows
    values = sparse.values[index].tolist()
    texts = sparse.texts
    return [
        "" if not is_there else texts[int(value)] if texts else str(int(value))
        for is_there, value in zip(there.tolist(), values, strict=True)
    ]
