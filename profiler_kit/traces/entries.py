"""A trace file's entries where they stand: whole events as stretches of bytes, and just enough of each to choose which to keep.

For copying a trace of any size event by event. What the events mean is `reader`'s matter; here none is lost or changed, not even
one that is no event at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces.chunks import NOT_DECODED
from profiler_kit.traces.dialect import KINDS
from profiler_kit.traces.splitting import Head, Run, split
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask

METADATA: Final = 100  # beside the numbers of `Kind`: names of processes and threads
FLOW_START: Final = 101
FLOW_STEP: Final = 102
FLOW_END: Final = 103
UNREAD: Final = 104  # no event, or none that can be understood

_FLOWS: Final = {"s": FLOW_START, "t": FLOW_STEP, "f": FLOW_END}
_CALLS: Final = ("X", "B", "E")


class _Args(msgspec.Struct, gc=False):
    correlation: Any = None


class _Event(msgspec.Struct, gc=False):
    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    id: Any = None
    args: _Args | None = None


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


class _Row(NamedTuple):
    start_us: float
    end_us: float
    kind: int
    thread: int
    flow: int
    correlation: int
    sliced: bool


_UNREAD_ROW: Final = _Row(np.nan, np.nan, UNREAD, NONE, NONE, NONE, False)


def scan(path: Path) -> Entries:
    """What there is to choose from in the trace at `path`. Raises: TraceError where it is no trace."""
    sizes: list[Ids] = []
    columns: list[tuple[NDArray[Any], ...]] = []
    threads: dict[tuple[str, str], int] = {}
    flows: dict[tuple[Any, Any, Any], int] = {}
    outside, cut_off = 0, False
    for part in split(path):
        if isinstance(part, Run):
            rows = [_row(event, threads, flows) for event in _events(part)]
            sizes.append((part.ends - part.starts + 1).astype(np.int32))
            columns.append(_arrays(rows))
        elif isinstance(part, Head):
            outside += len(part.data)
        else:
            outside += len(part.data)
            cut_off = cut_off or part.cut_off
    columns = columns or [_arrays([])]
    start, end, kind, thread, flow, correlation, sliced = (np.concatenate(each) for each in zip(*columns, strict=True))
    return Entries(
        size=np.concatenate(sizes) if sizes else np.zeros(0, np.int32),
        start_us=start,
        end_us=end,
        kind=kind,
        thread=thread,
        flow=flow,
        correlation=correlation,
        sliced=sliced,
        outside=outside,
        cut_off=cut_off,
        pids=frozenset(pid for pid, _ in threads),
    )


def _arrays(rows: list[_Row]) -> tuple[NDArray[Any], ...]:
    types = (np.float64, np.float64, np.int8, np.int32, np.int32, np.int64, np.bool_)
    columns = zip(*rows, strict=True) if rows else ((),) * len(types)
    return tuple(np.array(column, dtype=dtype) for column, dtype in zip(columns, types, strict=True))


_RUN: Final = msgspec.json.Decoder(list[_Event])
_ONE: Final = msgspec.json.Decoder(_Event)


def _events(run: Run) -> Iterator[_Event | None]:
    """The run's elements; None for one that can't be understood."""
    try:
        decoded = _RUN.decode(b"".join((b"[", memoryview(run.data)[: int(run.ends[-1])], b"]")))
        if len(decoded) == len(run.ends):
            yield from decoded
            return
    except NOT_DECODED:
        pass  # one of them is not what it should be: each for itself
    for begin, end in zip(run.starts.tolist(), run.ends.tolist(), strict=True):
        element = run.data[begin:end].decode("utf-8", errors="replace")
        try:
            yield _ONE.decode(_without_control_characters(element))
        except (msgspec.DecodeError, RecursionError):
            yield None


def _without_control_characters(element: str) -> str:
    # A name may hold what JSON forbids; reader and viewers forgive it.
    return "".join(char if char >= " " else " " for char in element)


def _row(event: _Event | None, threads: dict[tuple[str, str], int], flows: dict[tuple[Any, Any, Any], int]) -> _Row:
    if event is None or not isinstance(event.ph, str):
        return _UNREAD_ROW
    try:
        # Some writers quote a thread's number in one place and not in another; viewers take both for the same.
        thread = threads.setdefault((str(event.pid), str(event.tid)), len(threads))
        start = _number(event.ts)
        if event.ph == "M":
            return _Row(start, start, METADATA, thread, NONE, NONE, False)
        flow_kind = _FLOWS.get(event.ph)
        if flow_kind is not None:
            flow = flows.setdefault((event.cat, event.name, event.id), len(flows))
            return _Row(start, start, flow_kind, thread, flow, NONE, False)
        kind = KINDS.get(event.cat, Kind.OTHER) if event.ph in _CALLS else Kind.INSTANT
        correlation = NONE if event.args is None or event.args.correlation is None else int(event.args.correlation)
        end = start + _number(event.dur) if event.dur is not None else start
        return _Row(start, end, int(kind), thread, NONE, correlation, event.ph == "X")
    except (TypeError, ValueError, OverflowError):
        return _UNREAD_ROW


def _number(value: Any) -> float:
    return np.nan if value is None else float(value)
