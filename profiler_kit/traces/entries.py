"""A trace file's entries where they stand: whole events as stretches of bytes, and just enough of each to choose which to keep.

For copying a trace of any size event by event. What the events mean is `reader`'s matter; here none is lost or changed, not even
one that is no event at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces import dialect
from profiler_kit.traces.chunks import NOT_DECODED
from profiler_kit.traces.splitting import Run, Tail, split
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask

METADATA: Final = 100  # beside the numbers of `Kind`: names of processes and threads
FLOW_START: Final = 101
FLOW_STEP: Final = 102
FLOW_END: Final = 103
UNREAD: Final = 104  # no event, or none that can be understood

_BOX: Final = chr(dialect.COMPLETE)
_CALLS: Final = (_BOX, chr(dialect.BEGIN), chr(dialect.END))
_NAMES: Final = chr(dialect.METADATA)
_FLOWS: Final = dict(zip(dialect.FLOWS.decode(), (FLOW_START, FLOW_STEP, FLOW_END), strict=True))
_LARGEST: Final = 1 << 62  # beyond what an id can be


class _Args(msgspec.Struct, gc=False):
    correlation: Annotated[int, msgspec.Meta(ge=-_LARGEST, lt=_LARGEST)] | None = NONE


class _Event(msgspec.Struct, gc=False):
    """As nearly every event is written."""

    ph: str
    cat: str = ""
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: float = np.nan
    dur: float = 0.0
    id: Any = None
    args: _Args | None = None


class _LooseArgs(msgspec.Struct, gc=False):
    correlation: Any = None


class _LooseEvent(msgspec.Struct, gc=False):
    """The same with numbers that may be quoted, or anything else."""

    ph: str
    cat: Any = ""
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = np.nan
    dur: Any = 0.0
    id: Any = None
    args: _LooseArgs | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entries:
    """One entry per element of the file's list, in its order.

    `size`: bytes, with a comma. `start_us`, `end_us`: the floats that viewers read, NaN where there are none. `kind`: a `Kind`,
    or one of this file's constants. `thread` and `flow` number distinct (pid, tid) and (category, name, id), NONE for entries
    without. `sliced`: a box that viewers draw on its thread. `outside`: bytes before and after the entries.
    """

    size: Ids
    start_us: NDArray[np.float64]
    end_us: NDArray[np.float64]
    kind: Bytes
    thread: Ids
    flow: Ids
    correlation: Ints
    sliced: Mask
    outside: int
    cut_off: bool
    pids: frozenset[str]

    def __len__(self) -> int:
        """The number of entries."""
        return len(self.size)


def scan(path: Path) -> Entries:
    """What there is to choose from in the trace at `path`. Raises: TraceError where it is no trace."""
    parts = [_part([], np.zeros(0, np.int32), _Numbers())]
    numbers = _Numbers()
    outside, cut_off = 0, False
    for piece in split(path):
        if isinstance(piece, Run):
            parts.append(_part(_events(piece), (piece.ends - piece.starts + 1).astype(np.int32), numbers))
        else:
            outside += len(piece.data)
            cut_off = cut_off or (isinstance(piece, Tail) and piece.cut_off)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    pids = frozenset(pid for pid, _ in numbers.threads)
    return Entries(**columns, outside=outside, cut_off=cut_off, pids=pids)


_RUN: Final = msgspec.json.Decoder(list[_Event])
_ONE: Final = msgspec.json.Decoder(_LooseEvent)
_UNREAD: Final = _Event(ph="")


def _events(run: Run) -> list[_Event]:
    """The run's elements; `_UNREAD` for one that can't be understood."""
    try:
        decoded = _RUN.decode(b"".join((b"[", memoryview(run.data)[: int(run.ends[-1])], b"]")))
        if len(decoded) == len(run.ends):
            return decoded
    except NOT_DECODED:
        pass  # one of them is not what nearly all are: each for itself
    stretches = zip(run.starts.tolist(), run.ends.tolist(), strict=True)
    return [_loose(run.data[begin:end].decode("utf-8", errors="replace")) for begin, end in stretches]


def _loose(element: str) -> _Event:
    try:
        # A name may hold control characters, which JSON forbids; reader and viewers forgive it.
        event = _ONE.decode("".join(char if char >= " " else " " for char in element))
        correlation = NONE if event.args is None or event.args.correlation is None else int(event.args.correlation)
        return _Event(
            ph=event.ph,
            cat=str(event.cat),
            name=event.name,
            pid=str(event.pid),
            tid=str(event.tid),
            ts=np.nan if event.ts is None else float(event.ts),
            dur=0.0 if event.dur is None else float(event.dur),
            id=event.id if isinstance(event.id, (int, str, float)) else repr(event.id),
            args=_Args(correlation=correlation if -_LARGEST <= correlation < _LARGEST else NONE),
        )
    except (*NOT_DECODED, TypeError, ValueError, OverflowError):
        return _UNREAD


class _Numbers:
    """Numbers given to threads, flows and what events are, as they come."""

    def __init__(self) -> None:
        self.threads: dict[tuple[str, str], int] = {}
        self._threads: dict[tuple[Any, Any], int] = {}  # by the ids as written
        self._flows: dict[tuple[str, str, str], int] = {}
        self._whats: dict[tuple[str, str], tuple[int, bool]] = {}

    def thread(self, event: _Event) -> int:
        """The number of the event's thread."""
        try:
            return self._threads[event.pid, event.tid]
        except (KeyError, TypeError):  # TypeError: ids that are lists
            # Some writers quote a thread's number in one place and not in another; viewers take both for the same.
            number = self.threads.setdefault((str(event.pid), str(event.tid)), len(self.threads))
            if isinstance(event.pid, (int, str)) and isinstance(event.tid, (int, str)):
                self._threads[event.pid, event.tid] = number
            return number

    def flow(self, event: _Event) -> int:
        """The number of the event's arrow."""
        return self._flows.setdefault((event.cat, repr(event.name), repr(event.id)), len(self._flows))

    def what(self, event: _Event) -> tuple[int, bool]:
        """The event's kind, and whether it is a box."""
        try:
            return self._whats[event.ph, event.cat]
        except KeyError:
            return self._whats.setdefault((event.ph, event.cat), (_kind(event), event.ph == _BOX))


def _kind(event: _Event) -> int:
    if not event.ph:
        return UNREAD
    if event.ph == _NAMES:
        return METADATA
    if event.ph in _FLOWS:
        return _FLOWS[event.ph]
    return int(dialect.KINDS.get(event.cat, Kind.OTHER) if event.ph in _CALLS else Kind.INSTANT)


def _part(events: list[_Event], size: Ids, numbers: _Numbers) -> dict[str, NDArray[Any]]:
    """The columns of `events`."""
    count = len(events)
    start = np.fromiter((event.ts for event in events), np.float64, count)
    whats = [numbers.what(event) for event in events]
    kind = np.array([kind for kind, _ in whats], dtype=np.int8)
    thread = np.array([numbers.thread(event) for event in events], dtype=np.int32)
    thread[kind == UNREAD] = NONE
    flow = np.full(count, NONE, dtype=np.int32)
    for i in np.flatnonzero((kind >= FLOW_START) & (kind <= FLOW_END)).tolist():
        flow[i] = numbers.flow(events[i])
    duration = np.fromiter((event.dur for event in events), np.float64, count)
    with np.errstate(over="ignore"):  # garbage may end at infinity
        end = start + duration
    args = (event.args for event in events)
    correlations = (NONE if each is None or each.correlation is None else each.correlation for each in args)
    correlation = np.fromiter(correlations, np.int64, count)
    sliced = np.array([sliced for _, sliced in whats], dtype=np.bool_)
    return {
        "size": size, "start_us": start, "end_us": end, "kind": kind, "thread": thread, "flow": flow,
        "correlation": correlation, "sliced": sliced,
    }  # fmt: skip
