"""Collectives: how long they took, and how much of that no computation hid."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

import numpy as np

from profiler_kit.inspection.ownership import PHASE_NUMBERS, Owned
from profiler_kit.inspection.spans import length, subtract, union
from profiler_kit.inspection.timeline import Timeline
from profiler_kit.records.traces import CollectiveTime, Communication
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Table

# What the profiler, NCCL's kernels, PyTorch's operators and annotations call them; the order matters: all_reduce is no reduce.
_KINDS: Final = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("all_reduce", r"all_?reduce"),
        ("all_gather", r"all_?gather"),
        ("reduce_scatter", r"reduce_?scatter"),
        ("all_to_all", r"all_?to_?all"),
        ("broadcast", r"broadcast"),
        ("barrier", r"barrier"),
        ("gather", r"gather"),
        ("scatter", r"scatter"),
        ("reduce", r"reduce"),
        ("send_recv", r"send|recv|batch_?isend"),
    )
)
_DEEPEST: Final = 64  # calls around a launch: further out none says anything of it
_OTHER: Final = "collective"
_CALLS: Final = re.compile(r"\A(nccl|gloo|mpi|ucc|xccl|hccl):|\Ac10d::")

_BYTES: Final = {
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "half": 2, "bfloat16": 2,
    "short": 2, "float16": 2, "int": 4, "float": 4, "float32": 4, "int32": 4, "long": 8, "double": 8, "int64": 8, "float64": 8,
    "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip


def communication(owned: Owned, line: Timeline) -> Communication | None:
    """The collectives of a trace; None where it has none. What exposes them is time without a kernel of another sort."""
    collective = owned.device.phase == PHASE_NUMBERS["communication"]
    if not collective.any():
        return None
    kernels = ~collective & (owned.table.kind[owned.device.rows] == Kind.KERNEL)
    spans = union(line.start[collective], line.end[collective], ordered=True)
    covered = union(line.start[kernels], line.end[kernels], ordered=True)
    events = np.flatnonzero(collective).astype(np.int32)
    return Communication(
        events=len(events),
        sum_ns=int((line.end - line.start)[events].sum()),
        union_ns=length(spans),
        exposed_ns=length(subtract(spans, covered)),
        by_kind=_by_kind(owned, line, events),
    )


def collective_kind(name: str) -> str | None:
    """The kind of collective that `name` says, None where it says none."""
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), None)


def _by_kind(owned: Owned, line: Timeline, events: Ids) -> tuple[CollectiveTime, ...]:
    duration = (line.end - line.start)[events].tolist()
    sizes = message_bytes(owned.table, owned.device.rows[events])
    groups: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for kind, ns, size in zip(kinds(owned, events), duration, sizes.tolist(), strict=True):
        groups[kind].append((ns, size))
    return tuple(
        CollectiveTime(
            kind=kind,
            events=len(members),
            sum_ns=sum(ns for ns, _ in members),
            bytes=None if any(size == NONE for _, size in members) else sum(size for _, size in members),
        )
        for kind, members in sorted(groups.items(), key=lambda item: -sum(ns for ns, _ in item[1]))
    )


def kinds(owned: Owned, events: Ids) -> list[str]:
    """What each collective is: as the profiler noted, as its kernel's name says, or as the call around its launch is named."""
    table, device = owned.table, owned.device
    noted = texts(table, "Collective name", device.rows[events])
    known: dict[str, str | None] = {}
    found = []
    for event, note in zip(events.tolist(), noted, strict=True):
        kind = None
        for text in (note, table.names[table.name[device.rows[event]]]):
            if text and kind is None:
                kind = known[text] if text in known else known.setdefault(text, collective_kind(text))
        found.append(kind or _by_call(owned, int(device.launch[event])) or _OTHER)
    return found


def _by_call(owned: Owned, launch: int) -> str | None:
    table, host = owned.table, owned.host
    at = int(host.parent[launch]) if launch != NONE else NONE
    for _ in range(_DEEPEST):
        if at == NONE:
            break
        name = table.names[table.name[host.rows[at]]]
        if _CALLS.match(name):
            return collective_kind(name)
        at = int(host.parent[at])
    return None


def texts(table: Table, column: str, rows: Ids) -> list[str]:
    """The texts of a sparse column for `rows`, "" where a row has none."""
    sparse = table.more.get(column)
    if sparse is None or not len(sparse.rows):
        return [""] * len(rows)
    at = np.minimum(np.searchsorted(sparse.rows, rows), len(sparse.rows) - 1)
    has = sparse.rows[at] == rows
    return [
        sparse.texts[int(value)] if here and 0 <= int(value) < len(sparse.texts) else ""
        for here, value in zip(has.tolist(), sparse.values[at].tolist(), strict=True)
    ]


def message_bytes(table: Table, rows: Ids) -> Ints:
    """The size of each collective's input in bytes, NONE where the trace does not tell."""
    result = np.full(len(rows), NONE, np.int64)
    sparse = table.more.get("In msg nelems")
    if sparse is None or sparse.texts or not len(sparse.rows):
        return result
    at = np.minimum(np.searchsorted(sparse.rows, rows), len(sparse.rows) - 1)
    for i, kind in enumerate(texts(table, "dtype", rows)):
        size = _BYTES.get(kind.rpartition("::")[2].lower())
        elements = int(sparse.values[at[i]])
        if size is not None and sparse.rows[at[i]] == rows[i] and elements >= 0:
            result[i] = size * elements
    return result
