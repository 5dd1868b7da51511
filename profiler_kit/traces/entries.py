"""The entries of a trace file in place: the byte range of each event, and just enough of its content to select entries.

Used to copy a trace of any size event by event. The meaning of the events is defined in `reader`. Here no entry is
lost or changed, not even a malformed one; flow arrows without both ends can be left out.
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


def without_unmatched_flows(entries: Entries, keep: Mask) -> Mask:
    """Return `keep` without the flow events that would not be part of an arrow among the kept entries.

    Arrows are paired as in chrome://tracing: by time, then by file order. A start opens its id, the next end closes
    it. Both must lie inside a box of their thread.
    """
    is_flow = (entries.kind >= FLOW_START) & (entries.kind <= FLOW_END)
    flows = np.flatnonzero(keep & is_flow)
    flows = flows[within_boxes(entries, keep, flows)]
    # By id, then time, so that pairs are adjacent. Both sorts are stable and keep the file order of equal times.
    flows = flows[np.argsort(entries.start_us[flows], kind="stable")]
    flows = flows[np.argsort(entries.flow[flows], kind="stable")]
    matched = flows[_paired(entries.flow[flows], entries.kind[flows])]
    result = keep & ~is_flow
    result[matched] = True
    return result


def _paired(flow: NDArray[np.int32], kind: NDArray[np.int8]) -> Mask:
    """Return which of the flow events, ordered by id and time, are part of an arrow with start and end."""
    is_start = kind == FLOW_START
    is_end = kind == FLOW_END
    paired = np.zeros(len(flow), dtype=np.bool_)
    if len(flow) < 2:
        return paired
    same_flow = flow[1:] == flow[:-1]
    if not (kind == FLOW_STEP).any():
        # A start followed by another start has no end. An end must directly follow a start.
        arrow = np.flatnonzero(same_flow & is_start[:-1] & is_end[1:])
        paired[arrow] = paired[arrow + 1] = True
        return paired
    # Arrows with intermediate steps are rare, and Kineto writes none. They are paired one by one.
    open_parts: list[int] = []
    for i, (number, part) in enumerate(zip(flow.tolist(), kind.tolist(), strict=True)):
        if open_parts and flow[open_parts[-1]] != number:
            open_parts = []
        if part == FLOW_START:
            open_parts = [i]
        elif open_parts:
            open_parts.append(i)
            if part == FLOW_END:
                paired[open_parts] = True
                open_parts = []
    return paired


def within_boxes(entries: Entries, visible: Mask, flows: NDArray[np.intp]) -> Mask:
    """Return which of `flows` lie inside a `visible` box of their own thread."""
    boxes = np.flatnonzero(visible & entries.sliced & (entries.thread != NONE) & ~np.isnan(entries.start_us))
    order = np.lexsort((entries.start_us[boxes], entries.thread[boxes]))
    boxes = boxes[order]
    thread = entries.thread[boxes]
    start = entries.start_us[boxes]
    end = entries.end_us[boxes]
    is_inside = np.zeros(len(flows), dtype=np.bool_)
    first = np.searchsorted(thread, np.arange(int(thread[-1]) + 2)) if len(thread) else np.zeros(1, dtype=np.intp)
    flow_thread = entries.thread[flows]
    by_thread = np.argsort(flow_thread, kind="stable")
    bounds = np.flatnonzero(np.diff(flow_thread[by_thread], prepend=-2))
    for group in np.split(by_thread, bounds[1:]) if len(by_thread) else ():
        number = int(flow_thread[group[0]])
        if number + 1 >= len(first) or first[number] == first[number + 1]:
            continue
        on_thread = slice(int(first[number]), int(first[number + 1]))
        latest_end = np.maximum.accumulate(end[on_thread])
        flow_time = entries.start_us[flows[group]]
        before = np.searchsorted(start[on_thread], flow_time, side="right") - 1
        is_inside[group] = (before >= 0) & (latest_end[np.maximum(before, 0)] >= flow_time)
    return is_inside


METADATA: Final = 100  # in addition to the numbers of `Kind`: names of processes and threads
FLOW_START: Final = 101
FLOW_STEP: Final = 102
FLOW_END: Final = 103
UNREAD: Final = 104  # not an event, or unreadable

_BOX: Final = chr(dialect.COMPLETE)
_CALLS: Final = (_BOX, chr(dialect.BEGIN), chr(dialect.END))
_METADATA_PHASE: Final = chr(dialect.METADATA)
_FLOWS: Final = dict(zip(dialect.FLOWS.decode(), (FLOW_START, FLOW_STEP, FLOW_END), strict=True))
_MAX_ID: Final = 1 << 62  # larger than any id


class _Args(msgspec.Struct, gc=False):
    correlation: Annotated[int, msgspec.Meta(ge=-_MAX_ID, lt=_MAX_ID)] | None = NONE


class _Event(msgspec.Struct, gc=False):
    """An event as nearly all are written."""

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
    """An event with numbers that may be quoted or malformed."""

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
    """One entry per element of the file's event list, in file order.

    `size`: bytes, with a comma. `start_us`, `end_us`: the times as floats, as viewers read them, NaN if missing.
    `kind`: a `Kind` or one of this file's constants. `thread`, `flow`: indices of distinct (pid, tid) and (category,
    name, id), NONE if missing. `sliced`: a box that viewers draw on its thread. `outside`: bytes before and after the
    entries.
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


def scan_entries(path: Path) -> Entries:
    """Return the entries of the trace at `path`. Raises: TraceError if it is not a trace."""
    parts = [_columns_of([], np.zeros(0, np.int32), _Numbering())]
    numbers = _Numbering()
    outside, cut_off = 0, False
    for piece in split(path):
        if isinstance(piece, Run):
            parts.append(_columns_of(_events(piece), (piece.ends - piece.starts + 1).astype(np.int32), numbers))
        else:
            outside += len(piece.data)
            cut_off = cut_off or (isinstance(piece, Tail) and piece.cut_off)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    pids = frozenset(pid for pid, _ in numbers.threads)
    return Entries(**columns, outside=outside, cut_off=cut_off, pids=pids)


_RUN_DECODER: Final = msgspec.json.Decoder(list[_Event])
_LOOSE_DECODER: Final = msgspec.json.Decoder(_LooseEvent)
_UNREAD: Final = _Event(ph="")


def _events(run: Run) -> list[_Event]:
    """Return the elements of the run, with `_UNREAD` for unreadable ones."""
    try:
        decoded = _RUN_DECODER.decode(b"".join((b"[", memoryview(run.data)[: int(run.ends[-1])], b"]")))
        if len(decoded) == len(run.ends):
            return decoded
    except NOT_DECODED:
        pass  # one of them is malformed: decode them one by one
    stretches = zip(run.starts.tolist(), run.ends.tolist(), strict=True)
    return [_decode_loosely(run.data[begin:end].decode("utf-8", errors="replace")) for begin, end in stretches]


def _decode_loosely(element: str) -> _Event:
    try:
        # A name may hold control characters, which JSON forbids. Readers and viewers accept them.
        event = _LOOSE_DECODER.decode("".join(char if char >= " " else " " for char in element))
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
            args=_Args(correlation=correlation if -_MAX_ID <= correlation < _MAX_ID else NONE),
        )
    except (*NOT_DECODED, TypeError, ValueError, OverflowError):
        return _UNREAD


class _Numbering:
    """Assigns numbers to threads, flows and kinds of events in order of appearance."""

    def __init__(self) -> None:
        self.threads: dict[tuple[str, str], int] = {}
        self._threads: dict[tuple[Any, Any], int] = {}  # by the ids as written
        self._flows: dict[tuple[str, str, str], int] = {}
        self._kinds: dict[tuple[str, str], tuple[int, bool]] = {}

    def thread(self, event: _Event) -> int:
        """Return the number of the event's thread."""
        try:
            return self._threads[event.pid, event.tid]
        except (KeyError, TypeError):  # TypeError: ids that are lists
            # Some writers quote a thread's number only in some places. Viewers treat both spellings as equal.
            number = self.threads.setdefault((str(event.pid), str(event.tid)), len(self.threads))
            if isinstance(event.pid, (int, str)) and isinstance(event.tid, (int, str)):
                self._threads[event.pid, event.tid] = number
            return number

    def flow(self, event: _Event) -> int:
        """Return the number of the event's flow arrow."""
        return self._flows.setdefault((event.cat, repr(event.name), repr(event.id)), len(self._flows))

    def kind_and_box(self, event: _Event) -> tuple[int, bool]:
        """Return the event's kind, and whether viewers draw it as a box."""
        try:
            return self._kinds[event.ph, event.cat]
        except KeyError:
            return self._kinds.setdefault((event.ph, event.cat), (_kind(event), event.ph == _BOX))


def _kind(event: _Event) -> int:
    if not event.ph:
        return UNREAD
    if event.ph == _METADATA_PHASE:
        return METADATA
    if event.ph in _FLOWS:
        return _FLOWS[event.ph]
    return int(dialect.KINDS.get(event.cat, Kind.OTHER) if event.ph in _CALLS else Kind.INSTANT)


def _columns_of(events: list[_Event], size: Ids, numbers: _Numbering) -> dict[str, NDArray[Any]]:
    """Return the columns of `events`."""
    count = len(events)
    start = np.fromiter((event.ts for event in events), np.float64, count)
    kinds_and_boxes = [numbers.kind_and_box(event) for event in events]
    kind = np.array([kind for kind, _ in kinds_and_boxes], dtype=np.int8)
    thread = np.array([numbers.thread(event) for event in events], dtype=np.int32)
    thread[kind == UNREAD] = NONE
    flow = np.full(count, NONE, dtype=np.int32)
    for i in np.flatnonzero((kind >= FLOW_START) & (kind <= FLOW_END)).tolist():
        flow[i] = numbers.flow(events[i])
    duration = np.fromiter((event.dur for event in events), np.float64, count)
    with np.errstate(over="ignore"):  # malformed times may overflow to infinity
        end = start + duration
    args = (event.args for event in events)
    correlations = (
        NONE if arguments is None or arguments.correlation is None else arguments.correlation for arguments in args
    )
    correlation = np.fromiter(correlations, np.int64, count)
    sliced = np.array([sliced for _, sliced in kinds_and_boxes], dtype=np.bool_)
    return {
        "size": size, "start_us": start, "end_us": end, "kind": kind, "thread": thread, "flow": flow,
        "correlation": correlation, "sliced": sliced,
    }  # fmt: skip
