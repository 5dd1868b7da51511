"""The events of one trace as columns: what `reader` returns and everything after it works on.

A row is an event that takes a place in time: complete events (pairs of begin and end too), instants and counters. Flows and
metadata are no rows; they are counted, so that nothing is lost unseen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

NONE: Final = -1  # in every id column: the event has no such id
_LATEST_NS: Final = 1 << 61  # the year 2043, for times that count from 1970
_LONGEST_NS: Final = 1 << 46  # 19 hours: the durations of 100,000 such events can still be added up

Ints = NDArray[np.int64]
Ids = NDArray[np.int32]
Bytes = NDArray[np.int8]
Mask = NDArray[np.bool_]


class Kind(IntEnum):
    """What an event is, whatever its writer called it."""

    OTHER = 0  # overhead of the profiler, mirrored annotations, and what no reader has met
    OPERATOR = 1
    ANNOTATION = 2  # a range that somebody named on the host: ProfilerStep#3, Optimizer.step#SGD.step, the author's own
    PYTHON = 3  # a Python or nn.Module call
    RUNTIME = 4  # a call of the device's runtime or driver on the host
    KERNEL = 5
    MEMCPY = 6
    MEMSET = 7
    SYNC = 8  # the device's side of a wait, as the profiler saw it
    MIRROR = 9  # an annotation mirrored onto the device's timeline: no work
    MEMORY = 10  # an allocation or a release
    COUNTER = 11
    INSTANT = 12


HOST_KINDS: Final = (Kind.OPERATOR, Kind.ANNOTATION, Kind.PYTHON, Kind.RUNTIME)
DEVICE_KINDS: Final = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)


class Thread(NamedTuple):
    """A host thread, ids as written; `name` is "" where the trace does not say one."""

    process: str
    thread: str
    name: str = ""


class Stream(NamedTuple):
    """A stream of a device, ids as written."""

    device: str
    stream: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sparse:
    """A column that few events have: `values[i]` belongs to row `rows[i]`; rows ascend. Texts are ids into `texts`."""

    rows: Ids
    values: Ints | NDArray[np.float64]
    texts: tuple[str, ...] = ()


# Keys of `Table.more` that are asked for by name, as Kineto writes them; `dialect` gives other writers' the same keys.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceInfo:
    """What a trace says of itself beside its events; None where it does not say.

    `base_ns`: what every time counts from, in ns since 1970, 0 where times count from there themselves.
    """

    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    devices: tuple[str, ...] = ()  # names, by device number
    base_ns: int = 0
    record_shapes: bool = False
    with_stack: bool = False
    profile_memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """The events of one file. Columns have one entry per row; rows stand as in the file.

    Units: ns, integer. Ids are `NONE` (-1) where an event has none; `name`, `category`, `thread` and `stream` are positions in
    the tuples of the same name. `thread` is the host thread (or, for device events, what the file gives for one); `stream` is
    set for device events alone.
    `sequence` is autograd's number, of the next node to be made when a forward op began, or of the node being run;
    `forward_thread` the profiler's own number of the thread that made the node, 0 outside of autograd nodes.
    `correlation` joins a runtime call to the device events it enqueued; `external` joins both to the operator.
    `shapes` and `inputs` are positions in `texts`: an operator's "Input Dims" and "Concrete Inputs" as written.
    `more`: what few events say of themselves, under the key that Kineto writes today, whatever the file's was ("bytes",
    "Collective name", "Python id"); "counter " and a series' name for the values of counters.

    `cut_off`: the file ends before its JSON does; what was whole is here. `events` counts the entries of the file's list:
    rows (a begun and ended pair is two entries), `flows`, `metadata`, `unpaired` and `malformed` sum to it.
    """

    file: str
    start_ns: Ints
    duration_ns: Ints
    kind: Bytes
    name: Ids
    category: Ids
    thread: Ids
    stream: Ids
    correlation: Ints
    external: Ints
    sequence: Ints
    forward_thread: Ints
    shapes: Ids
    inputs: Ids
    names: tuple[str, ...]
    categories: tuple[str, ...]
    threads: tuple[Thread, ...]
    streams: tuple[Stream, ...]
    texts: tuple[str, ...]
    more: Mapping[str, Sparse] = field(default_factory=dict)
    info: TraceInfo = TraceInfo()
    events: int = 0
    pairs: int = 0
    flows: int = 0
    metadata: int = 0
    unpaired: int = 0
    malformed: int = 0
    cut_off: bool = False
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.start_ns)

    @property
    def end_ns(self) -> Ints:
        """When each event ends."""
        return self.start_ns + self.duration_ns

    def times(self, rows: Ids | Ints) -> tuple[Ints, Ints]:
        """Start and end of each of `rows`, within bounds in which differences and sums of times do not overflow.

        An event of negative duration ends as it starts.
        """
        start = np.clip(self.start_ns[rows], -_LATEST_NS, _LATEST_NS)
        return start, start + np.clip(self.duration_ns[rows], 0, _LONGEST_NS)

    def of(self, *kinds: Kind) -> Mask:
        """Which rows are of one of `kinds`."""
        return np.isin(self.kind, np.array([int(kind) for kind in kinds], dtype=np.int8))

    def named(self, rows: Ids | Ints, pattern: re.Pattern[str]) -> Mask:
        """Which of `rows` have a name that `pattern` is found in; each name is searched once."""
        names = self.name[rows]
        used = np.zeros(len(self.names), np.bool_)
        used[names] = True
        matches = np.zeros(len(self.names), np.bool_)
        matches[[i for i in np.flatnonzero(used).tolist() if pattern.search(self.names[i])]] = True
        return matches[names]

    def numbers_at(self, key: str, rows: Ids) -> Ints:
        """The whole numbers of the column `key` of `more` at `rows`, NONE where a row has none."""
        sparse = self.more.get(key)
        if sparse is None or sparse.texts or not len(sparse.rows):
            return np.full(len(rows), NONE, dtype=np.int64)
        at = np.minimum(np.searchsorted(sparse.rows, rows), len(sparse.rows) - 1)
        return np.where(sparse.rows[at] == rows, sparse.values[at], NONE).astype(np.int64)

    def texts_at(self, key: str, rows: Ids) -> list[str]:
        """The texts of the column `key` of `more` at `rows`, "" where a row has none."""
        sparse = self.more.get(key)
        if sparse is None or not len(sparse.rows):
            return [""] * len(rows)
        at = np.minimum(np.searchsorted(sparse.rows, rows), len(sparse.rows) - 1)
        present = sparse.rows[at] == rows
        return [
            sparse.texts[value] if here and 0 <= value < len(sparse.texts) else ""
            for here, value in zip(present.tolist(), sparse.values[at].astype(np.int64).tolist(), strict=True)
        ]
