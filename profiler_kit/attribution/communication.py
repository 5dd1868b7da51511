"""Collectives: how long they took, and how much of that no computation hid."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np

from profiler_kit.attribution.ownership import PHASE_NUMBERS, Owned
from profiler_kit.attribution.spans import length, subtract, union
from profiler_kit.attribution.timeline import Timeline
from profiler_kit.records.traces import CollectiveTime, Communication
from profiler_kit.traces.collectives import calls_collective, collective_kind, element_bytes
from profiler_kit.traces.sparse import COLLECTIVE_NAME, DTYPE, IN_ELEMENTS, numbers_at, texts_at
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Table

_DEEPEST: Final = 64  # calls around a launch: further out none says anything of it
_MOST_ELEMENTS: Final = 1 << 58  # of 16 bytes: what an id of a broken trace may say does not run over
OTHER: Final = "collective"  # of a kind that nothing tells


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
    noted = texts_at(table, COLLECTIVE_NAME, device.rows[events])
    known: dict[str, str | None] = {}
    found = []
    for event, note in zip(events.tolist(), noted, strict=True):
        kind = None
        for text in (note, table.names[table.name[device.rows[event]]]):
            if text and kind is None:
                kind = known[text] if text in known else known.setdefault(text, collective_kind(text))
        found.append(kind or _by_call(owned, int(device.launch[event])) or OTHER)
    return found


def _by_call(owned: Owned, launch: int) -> str | None:
    table, host = owned.table, owned.host
    at = int(host.parent[launch]) if launch != NONE else NONE
    for _ in range(_DEEPEST):
        if at == NONE:
            break
        name = table.names[table.name[host.rows[at]]]
        if calls_collective(name) and (kind := collective_kind(name)) is not None:
            return kind
        at = int(host.parent[at])
    return None


def message_bytes(table: Table, rows: Ids) -> Ints:
    """The size of each collective's input in bytes, NONE where the trace does not tell."""
    elements = numbers_at(table, IN_ELEMENTS, rows)
    sizes = [element_bytes(dtype) for dtype in texts_at(table, DTYPE, rows)]
    size = np.array([NONE if each is None else each for each in sizes], np.int64)
    known = (elements >= 0) & (size != NONE)
    return np.where(known, np.clip(elements, 0, _MOST_ELEMENTS) * size, NONE)
