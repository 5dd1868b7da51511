"""The events of one trace as columns. `reader` returns this table, and all later stages work on it.

A row is an event with a time: complete events (pairs of begin and end too), instants and counters. Flows and metadata
are not rows. They are counted, so that all entries of the file are accounted for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

NONE: Final = -1  # in id columns: the event has no such id
_LATEST_NS: Final = 1 << 61  # the year 2043, for times that count from 1970
_USES_ALL_NAMES: Final = 100  # rows for each name: to look for unused ones takes longer than to search them all
_LONGEST_NS: Final = 1 << 46  # 19 hours: the durations of 100,000 such events can be summed

Ints = NDArray[np.int64]
Ids = NDArray[np.int32]
Bytes = NDArray[np.int8]
Mask = NDArray[np.bool_]


class Kind(IntEnum):
    """The kind of an event, independent of the writer's spelling."""

    OTHER = 0  # overhead of the profiler, and unknown events
    OPERATOR = 1
    ANNOTATION = 2  # a named range on the host: ProfilerStep#3, Optimizer.step#SGD.step, record_function
    PYTHON = 3  # a Python or nn.Module call
    RUNTIME = 4  # a call of the device's runtime or driver on the host
    KERNEL = 5
    MEMCPY = 6
    MEMSET = 7
    SYNC = 8  # a wait on the device, as the profiler recorded it
    MIRROR = 9  # a copy of an annotation on the device's timeline: not work
    MEMORY = 10  # an allocation or a release
    COUNTER = 11
    INSTANT = 12


HOST_KINDS: Final = (Kind.OPERATOR, Kind.ANNOTATION, Kind.PYTHON, Kind.RUNTIME)
DEVICE_KINDS: Final = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)


class Thread(NamedTuple):
    """A host thread with ids as in the file. `name` is "" if unknown."""

    process: str
    thread: str
    name: str = ""


class Stream(NamedTuple):
    """A stream of a device, with ids as in the file."""

    device: str
    stream: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sparse:
    """A column that few events have: `values[i]` belongs to row `rows[i]`; rows ascend. Texts are indices of `texts`."""

    rows: Ids
    values: Ints | NDArray[np.float64]
    texts: tuple[str, ...] = ()


# Keys of `Table.more` that are looked up by name, in Kineto's spelling. `dialect` maps other spellings to these keys.
CALL_STACK: Final = "Call stack"
COLLECTIVE_NAME: Final = "Collective name"
GROUP_NAME: Final = "Process Group Name"
GROUP_RANKS: Final = "Process Group Ranks"
DTYPE: Final = "dtype"
INPUT_TYPES: Final = "Input type"
IN_ELEMENTS: Final = "In msg nelems"
ALLOCATED: Final = "Total Allocated"
RESERVED: Final = "Total Reserved"
DEVICE_TYPE: Final = "Device Type"
DEVICE_ID: Final = "Device Id"

HOST_TYPE: Final = 0  # of DEVICE_TYPE: c10::DeviceType::CPU


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceInfo:
    """Properties of a trace beside its events; None if unknown.

    `base_ns`: the origin of all times, in ns since 1970; 0 if the times themselves count from 1970.
    `hardware_counters`: the profiler replayed each kernel to count its instructions, which the program waits for.
    """

    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    devices: tuple[str, ...] = ()  # names by device number
    base_ns: int = 0
    record_shapes: bool = False
    with_stack: bool = False
    profile_memory: bool = False
    hardware_counters: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """The events of one file. Columns have one entry per row; rows are in file order.

    Units: integer ns. Id columns are `NONE` (-1) for events without an id. `name`, `category`, `thread` and `stream`
    are indices of the tuples with the plural name. `thread` is the host thread (or, for device events, the file's
    value). `stream` is set for device events only. `sequence` is autograd's number: of the next node to be created
    when a forward operator began, or of the running node. `forward_thread` is the profiler's number of the thread
    that created the node, 0 outside autograd nodes. `correlation` joins a runtime call to the device events it
    launched; `external` joins both to the operator. `shapes` and `inputs` are indices of `texts`: an operator's
    "Input Dims" and "Concrete Inputs" as written. `more`: sparse columns under the key that Kineto writes today
    ("bytes", "Collective name", "Python id"), and "counter " with a series' name for counter values.

    `cut_off`: the file ends before its JSON does; the table holds the intact part. `events`: the number of entries of
    the file's list. Rows (a pair of begin and end is two entries), `flows`, `metadata`, `unpaired` and `malformed`
    sum to it. `faults`: the reasons why entries are malformed, with their number. `lost_device_events`: the malformed
    entries that are kernels, copies or fills. `unreadable_arguments`: the rows that "args" would join to others, if they were an
    object.
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
    faults: tuple[tuple[str, int], ...] = ()
    unreadable_arguments: int = 0
    lost_device_events: int = 0
    cut_off: bool = False
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.start_ns)

    @property
    def end_ns(self) -> Ints:
        """The end of each event."""
        return self.start_ns + self.duration_ns

    def times(self, rows: Ids | Ints) -> tuple[Ints, Ints]:
        """Return start and end of each of `rows`, bounded so that differences and sums of times do not overflow.

        An event of negative duration ends at its start.
        """
        start = np.clip(self.start_ns[rows], -_LATEST_NS, _LATEST_NS)
        return start, start + np.clip(self.duration_ns[rows], 0, _LONGEST_NS)

    def of(self, *kinds: Kind) -> Mask:
        """Return which rows are of one of `kinds`."""
        return np.isin(self.kind, np.array([int(kind) for kind in kinds], dtype=np.int8))

    def named(self, rows: Ids | Ints, pattern: re.Pattern[str]) -> Mask:
        """Return which of `rows` have a name in which `pattern` is found. Each name is searched once."""
        return self.with_names(rows, pattern.search)

    def with_names(self, rows: Ids | Ints, accepts: Callable[[str], object]) -> Mask:
        """Return which of `rows` have a name for which `accepts` returns a true value. It is called once per name."""
        names = self.name[rows]
        used = np.full(len(self.names), len(rows) > _USES_ALL_NAMES * len(self.names))
        if not used.all():
            used[names] = True
        matches = np.zeros(len(self.names), np.bool_)
        matches[[i for i in np.flatnonzero(used).tolist() if accepts(self.names[i])]] = True
        return matches[names]

    def numbers_at(self, key: str, rows: Ids) -> Ints:
        """Return the integers of the sparse column `key` at `rows`, NONE if missing."""
        sparse = self.more.get(key)
        if sparse is None or sparse.texts or not len(sparse.rows):
            return np.full(len(rows), NONE, dtype=np.int64)
        index = np.minimum(np.searchsorted(sparse.rows, rows), len(sparse.rows) - 1)
        return np.where(sparse.rows[index] == rows, sparse.values[index], NONE).astype(np.int64)

    def texts_at(self, key: str, rows: Ids) -> list[str]:
        """Return the texts of the sparse column `key` at `rows`, "" if missing."""
        sparse = self.more.get(key)
        if sparse is None or not len(sparse.rows):
            return [""] * len(rows)
        index = np.minimum(np.searchsorted(sparse.rows, rows), len(sparse.rows) - 1)
        present = sparse.rows[index] == rows
        return [
            sparse.texts[value] if is_present and 0 <= value < len(sparse.texts) else ""
            for is_present, value in zip(present.tolist(), sparse.values[index].astype(np.int64).tolist(), strict=True)
        ]
