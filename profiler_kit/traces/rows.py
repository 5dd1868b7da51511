"""Columns of a `Table` from runs of decoded events, in a few vectorized passes per run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces import dialect, malformed
from profiler_kit.traces.arguments import (
    ArgumentColumns,
    GrowingColumn,
    GrowingSparse,
    Pool,
    arguments_of,
    as_text,
    keep_rows,
)
from profiler_kit.traces.chunks import NOT_DECODED, UndecodedEvents
from profiler_kit.traces.dialect import AnyEvent, Times
from profiler_kit.traces.event_runs import NO_PHASE, NO_TIME_NS, Run, decode, event_of, phases_of, times_of
from profiler_kit.traces.pairs import Pairs
from profiler_kit.traces.table import DEVICE_KINDS, NONE, Ints, Kind, Mask, Stream, Table, Thread, TraceInfo

_COUNTER: Final = msgspec.json.Decoder(dict[str, int | float | None], strict=False)
_MALFORMED_LIMIT: Final = 100_000  # a malformed event takes as long as twenty valid ones
_MAX_MALFORMED_SHARE: Final = 0.9
MAX_NAME_CHARS: Final = 10_000  # the longest names of CUTLASS kernels have 5,000; every search reads the whole name
_MAX_COUNTERS: Final = 64  # names of counters with a column each


def _byte_mask(phases: Iterable[int]) -> Mask:
    """Return a mask over all byte values that is true for `phases`."""
    return np.isin(np.arange(256), list(phases))


_DEVICE_KINDS: Final = [int(kind) for kind in DEVICE_KINDS]
_HOST_KINDS: Final = [int(kind) for kind in (Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME, Kind.PYTHON)]
_MIN_OUTSIDE_NS: Final = 10_000_000  # a queue of launches delays work by milliseconds
_FLOWS: Final = _byte_mask(dialect.FLOWS)
_INSTANTS: Final = _byte_mask(dialect.INSTANTS)
_WITH_DURATION: Final = _byte_mask((dialect.COMPLETE, dialect.BEGIN, dialect.END))
_EXACT_TIMES_SHARE: Final = 0.25  # of a run: above this share, it is cheaper to read all times as text
_DTYPES: Final = {
    "start_ns": np.int64, "duration_ns": np.int64, "kind": np.int8, "name": np.int32, "category": np.int32, "thread": np.int32,
    "stream": np.int32, "correlation": np.int64, "external": np.int64, "sequence": np.int64, "forward_thread": np.int64,
    "shapes": np.int32, "inputs": np.int32,
}  # fmt: skip
# PyTorch's name of a thread is more specific than the program's, which the thread had before.
_PREFERRED_THREAD_NAMES: Final = ("(pt_autograd", "(pt_")


class Rows:
    """The columns of a trace, which grow by runs. `table` completes them. `details`: see `read`."""

    def __init__(self, *, details: bool = True) -> None:
        self.events = self.flows = self.metadata = 0
        self.faults = Counter[str]()  # the malformed events by the reason why they cannot be read
        self.unreadable_arguments = 0
        self.lost_device_events = 0  # the malformed events that are kernels, copies or fills
        self.invalid_json = 0  # the malformed events that are not JSON
        self.names: Pool[str | None] = Pool(absent=(None,))
        self.categories: Pool[str] = Pool()
        self.has_phases = False
        self._threads: Pool[tuple[str, str]] = Pool()
        self._streams: Pool[Stream] = Pool()
        self._texts: Pool[bytes] = Pool(absent=(b"",))
        self._columns = {name: GrowingColumn(dtype) for name, dtype in _DTYPES.items()}
        self._more: dict[str, GrowingSparse] = {}
        self._thread_names: dict[tuple[str, str], str] = {}
        self._pairs = Pairs()
        self._rows = 0
        self._exact = False
        self._kind_of = np.empty(0, dtype=np.int8)  # by category
        arguments = dialect.ARGUMENTS if details else dialect.ARGUMENTS_WITHOUT_DETAILS
        self._groups = tuple(dict.fromkeys(arguments.values()))  # the kinds with the same fields share a group
        self._group_of_kind = np.array(
            [self._groups.index(arguments[k]) if k in arguments else NONE for k in Kind], dtype=np.int8
        )

    @property
    def malformed(self) -> int:
        """The number of events that cannot be read."""
        return self.faults.total()

    @property
    def is_mostly_malformed(self) -> bool:
        """Whether most of many events are malformed, so that reading on is not worth the time."""
        return self.malformed > _MALFORMED_LIMIT and self.malformed > _MAX_MALFORMED_SHARE * self.events

    @property
    def is_torch_trace(self) -> bool:
        """Whether any event has a category, name or process of PyTorch."""
        processes = {process for process, _ in self._threads}
        return (
            any(category in dialect.KINDS for category in self.categories)
            or dialect.MEMORY_NAME in self.names
            or not processes.isdisjoint(dialect.PROCESS_KINDS)
        )

    @property
    def is_usual(self) -> bool:
        """Whether no limit on unusual events has any effect."""
        return self.malformed <= _MALFORMED_LIMIT / 100 and len(self._more) < _MAX_COUNTERS

    def extend(self, later: Rows) -> None:
        """Append the events of a later part of the file."""
        for count in ("events", "flows", "metadata", "unreadable_arguments", "lost_device_events", "invalid_json"):
            setattr(self, count, getattr(self, count) + getattr(later, count))
        self.faults += later.faults
        self.has_phases |= later.has_phases
        numbers = {
            "name": self.names.numbers(later.names.values_in_order()),
            "category": self.categories.numbers(later.categories.values_in_order()),
            "thread": self._threads.numbers(later._threads.values_in_order()),
            "stream": self._streams.numbers(later._streams.values_in_order()),
            "shapes": (texts := self._texts.numbers(later._texts.values_in_order())),
            "inputs": texts,
        }
        for name, column in later._columns.items():
            values = column.values
            self._columns[name].add(np.append(numbers[name], np.int32(NONE))[values] if name in numbers else values)
        for spelling, sparse in later._more.items():
            self._sparse(spelling, sparse.form).extend(sparse, self._rows)
        for thread, thread_name in later._thread_names.items():
            self._keep_thread_name(thread, thread_name)
        self._pairs.extend(later._pairs, numbers["thread"], self._rows)
        self._rows += later._rows

    def decode(self, text: bytes) -> Run:
        """Return the events in `text`, a JSON list. Raises: one of NOT_DECODED."""
        return decode(text, exact=self._exact)

    def add(self, run: Run | UndecodedEvents) -> None:
        """Append the events of a run."""
        if isinstance(run, Run):
            self._add(run.events, run.times)
            return
        events, texts = [], []
        for text in run.texts:
            event = event_of(text)
            if event is None:
                self.faults["not an object with text for 'ph', 'cat' and 'name'"] += 1
                self.lost_device_events += malformed.is_device_event(text)
                self.invalid_json += self.malformed <= _MALFORMED_LIMIT and not malformed.is_json(text)
            else:
                events.append(event)
                texts.append(text)
        self.events += len(run.texts) - len(events)
        self._add(events, lambda: [malformed.times_of(text) for text in texts])

    def _add(self, events: Sequence[AnyEvent], texts_of_times: Callable[[], list[Times]]) -> None:
        self.events += len(events)
        phases = phases_of(events)
        flows, metadata = _FLOWS[phases], phases == dialect.METADATA
        without_phase = phases == ord(NO_PHASE)
        self.flows += int(np.count_nonzero(flows))
        self.metadata += int(np.count_nonzero(metadata))
        self._count_faults("'ph' is missing", without_phase)
        self.has_phases |= not without_phase.all()
        for index in np.flatnonzero(metadata).tolist():
            self._name_thread(events[index])
        is_row = ~(flows | metadata | without_phase)
        rows: list[Any] = list(compress(events, is_row.tolist()))
        if not rows:
            return
        phases = phases[is_row]
        start, duration, unsure_share = times_of(rows, lambda: compress(texts_of_times(), is_row.tolist()))
        self._exact |= unsure_share > _EXACT_TIMES_SHARE
        category = self.categories.numbers([e.cat for e in rows])
        name = self.names.numbers([e.name for e in rows])
        kind = self._kinds(rows, phases, category, name)
        ends = phases == dialect.END
        duration[(duration == NO_TIME_NS) & (phases != dialect.COMPLETE)] = 0
        with np.errstate(over="ignore"):
            is_valid = (start != NO_TIME_NS) & (duration >= 0) & ((name != NONE) | ends)
        if not is_valid.all():
            without_start = start == NO_TIME_NS
            self._count_faults("'ts' is missing or not a time", without_start)
            self._count_faults("'dur' is missing, negative or not a time", ~without_start & (duration < 0))
            self._count_faults("'name' is missing", ~is_valid & ~without_start & (duration >= 0))
            self.lost_device_events += int(np.count_nonzero(~is_valid & np.isin(kind, _DEVICE_KINDS)))
            rows = list(compress(rows, is_valid.tolist()))
            phases, start, duration, category = (
                phases[is_valid],
                start[is_valid],
                duration[is_valid],
                category[is_valid],
            )
            name, kind, ends = name[is_valid], kind[is_valid], ends[is_valid]
        thread = self._threads_of(rows)
        arguments = self._arguments(rows, kind)
        keep = ~ends
        numbers = self._rows + np.cumsum(keep) - 1
        begins_and_ends = np.flatnonzero((phases == dialect.BEGIN) | ends)
        if len(begins_and_ends):
            self._pairs.add(
                phases[begins_and_ends], thread[begins_and_ends], numbers[begins_and_ends], start[begins_and_ends]
            )
        columns: dict[str, NDArray[Any]] = {
            "start_ns": start, "duration_ns": duration, "kind": kind, "name": name, "category": category, "thread": thread,
            **self._linked(rows, kind, arguments),
        }  # fmt: skip
        keep_all = bool(keep.all())
        for column, values in columns.items():
            self._columns[column].add(values if keep_all else values[keep])
        for indices, columns_of_kind in arguments:
            self._keep_sparse(columns_of_kind, indices, keep, numbers)
        self._keep_counters(rows, np.flatnonzero((kind == Kind.COUNTER) & keep), numbers)
        self._rows += int(np.count_nonzero(keep))

    def _count_faults(self, reason: str, is_fault: Mask) -> None:
        if is_fault.any():
            self.faults[reason] += int(np.count_nonzero(is_fault))

    def _kinds(
        self, rows: list[Any], phases: NDArray[np.uint8], category: NDArray[np.int32], name: NDArray[np.int32]
    ) -> NDArray[np.int8]:
        if len(self._kind_of) < len(self.categories):
            kind_numbers = [int(dialect.KINDS.get(c, Kind.OTHER)) for c in self.categories.values_in_order()]
            self._kind_of = np.array(kind_numbers, dtype=np.int8)
        kind = self._kind_of[category]
        memory = name == self.names.get(dialect.MEMORY_NAME, len(self.names))
        instant = _INSTANTS[phases]
        has_duration = _WITH_DURATION[phases]
        kind[~has_duration] = Kind.OTHER
        kind[instant] = Kind.INSTANT
        kind[phases == dialect.COUNTER] = Kind.COUNTER
        kind[~has_duration & memory] = Kind.MEMORY
        no_category = self.categories.get("")
        if no_category is not None:
            for index in np.flatnonzero((category == no_category) & has_duration).tolist():
                kind[index] = dialect.PROCESS_KINDS.get(str(rows[index].pid), Kind.OTHER)
        return kind

    def _threads_of(self, rows: list[Any]) -> NDArray[np.int32]:
        """Return the thread of each row.

        Adjacent rows mostly share one, so threads are looked up only where they change.
        """
        try:
            process = np.fromiter([e.pid for e in rows], dtype=np.int64, count=len(rows))
            thread = np.fromiter([e.tid for e in rows], dtype=np.int64, count=len(rows))
            changes = np.flatnonzero((process[1:] != process[:-1]) | (thread[1:] != thread[:-1])) + 1
        except (ValueError, OverflowError, TypeError):  # ids that are not numbers
            changes = np.arange(1, len(rows))
        starts = np.concatenate(([0], changes)) if len(rows) else changes[:0]
        numbers = self._threads.numbers([(str(rows[i].pid), str(rows[i].tid)) for i in starts.tolist()])
        return np.repeat(numbers, np.diff(starts, append=len(rows)))

    def _arguments(self, rows: list[Any], kind: NDArray[np.int8]) -> list[tuple[NDArray[np.int64], ArgumentColumns]]:
        """Return the arguments of the rows, by kinds with the same fields."""
        columns = []
        group = self._group_of_kind[kind]
        for number, fields in enumerate(self._groups):
            indices = np.flatnonzero(group == number)
            if len(indices):
                events = rows if len(indices) == len(rows) else [rows[i] for i in indices.tolist()]
                columns.append((indices, arguments_of([e.args for e in events], fields)))
                if issubclass(fields, dialect.LinkArguments):
                    self.unreadable_arguments += columns[-1][1].unreadable
        return columns

    def _linked(
        self, rows: list[Any], kind: NDArray[np.int8], arguments: list[tuple[NDArray[np.int64], ArgumentColumns]]
    ) -> dict[str, NDArray[Any]]:
        """Return the columns that join events, and the stream."""
        columns: dict[str, NDArray[Any]] = {
            name: np.full(len(rows), 0 if name == "forward_thread" else NONE, dtype=np.int64)
            for name in dialect.NUMBER_COLUMNS
        }
        columns |= {name: np.full(len(rows), NONE, dtype=np.int32) for name in (*dialect.TEXT_COLUMNS, "stream")}
        for indices, columns_of_kind in arguments:
            for name, values in columns_of_kind.numbers.items():
                columns[name][indices] = values
            for name, texts in columns_of_kind.texts.items():
                columns[name][indices] = self._texts.numbers(texts)
            if columns_of_kind.devices is not None:
                # equal ids are joined before they become text: few are distinct
                ids = [
                    (rows[i].pid if device is None else device, rows[i].tid if stream is None else stream)
                    for i, (device, stream) in zip(indices.tolist(), columns_of_kind.devices, strict=True)
                ]
                streams = {pair: self._streams[Stream(str(pair[0]), str(pair[1]))] for pair in dict.fromkeys(ids)}
                columns["stream"][indices] = np.fromiter(map(streams.__getitem__, ids), dtype=np.int32, count=len(ids))
        return columns

    def _sparse(self, spelling: str, form: str) -> GrowingSparse:
        if spelling not in self._more:
            self._more[spelling] = GrowingSparse(form, as_text)
        return self._more[spelling]

    def _keep_sparse(
        self, arguments: ArgumentColumns, indices: NDArray[np.int64], keep: Mask, numbers: NDArray[np.int64]
    ) -> None:
        for field, selected, values in arguments.sparse:
            event_indices = indices[selected]
            is_kept = keep[event_indices]
            column = self._sparse(field.spelling, field.form)
            if isinstance(values, list):
                column.add_texts(numbers[event_indices[is_kept]], list(compress(values, is_kept.tolist())))
            else:
                column.add_numbers(numbers[event_indices[is_kept]], values[is_kept])

    def _keep_counters(self, rows: list[Any], indices: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        for index in indices.tolist():
            try:
                values = _COUNTER.decode(rows[index].args)
            except NOT_DECODED:
                continue  # a counter value that is not a number is dropped; the event stays
            for series, value in values.items():
                spelling = f"counter {series}"
                if value is not None and (spelling in self._more or len(self._more) < _MAX_COUNTERS):
                    self._sparse(spelling, "float").add_numbers(numbers[[index]], np.array([float(value)]))

    def _name_thread(self, event: AnyEvent) -> None:
        if event.name != "thread_name":
            return
        thread_name = (malformed.object_of(bytes(event.args)) or {}).get("name")
        if isinstance(thread_name, str):
            self._keep_thread_name((str(event.pid), str(event.tid)), malformed.clean(thread_name.strip()))

    def _keep_thread_name(self, thread: tuple[str, str], name: str) -> None:
        if _name_priority(name) >= _name_priority(self._thread_names.get(thread, "")):
            self._thread_names[thread] = name

    def table(self, file: str, info: TraceInfo, *, cut_off: bool, notes: Callable[[Rows], tuple[str, ...]]) -> Table:
        """Return the table. No events can be added afterwards."""
        columns: dict[str, NDArray[Any]] = {name: column.finish() for name, column in self._columns.items()}
        more = {spelling: column.finish() for spelling, column in self._more.items()}
        keep = np.ones(self._rows, dtype=np.bool_)
        keep[self._pairs.close(columns["duration_ns"])] = False
        is_recording = columns["category"] == self.categories.get(dialect.RECORDING, NONE)
        times = (columns["start_ns"], columns["duration_ns"])
        glitches = keep & outside_recording(columns["kind"], *times, is_recording & (times[1] > 0))
        self._count_faults("the time is far outside the recording", glitches)
        self.lost_device_events += int(np.count_nonzero(glitches & np.isin(columns["kind"], _DEVICE_KINDS)))
        keep &= ~glitches
        if not keep.all():
            renumbered = np.cumsum(keep) - 1
            columns = {name: column[keep] for name, column in columns.items()}
            more = {spelling: keep_rows(sparse, keep, renumbered) for spelling, sparse in more.items()}
        self.faults += Counter({"the end is before the begin": self._pairs.backwards})
        threads = tuple(Thread(*ids, self._thread_names.get(ids, "")) for ids in self._threads.values_in_order())
        return Table(
            file=file,
            **columns,
            names=tuple(str(name)[:MAX_NAME_CHARS] for name in self.names.values_in_order()),
            categories=self.categories.values_in_order(),
            threads=threads,
            streams=self._streams.values_in_order(),
            texts=tuple(t.decode("utf-8", errors="replace") for t in self._texts.values_in_order()),
            more={spelling: sparse for spelling, sparse in more.items() if len(sparse.rows)},
            info=info,
            events=self.events,
            pairs=self._pairs.paired,
            flows=self.flows,
            metadata=self.metadata,
            unpaired=self._pairs.unpaired,
            malformed=self.malformed,
            faults=tuple(sorted(self.faults.items(), key=lambda fault: (-fault[1], fault[0]))),
            unreadable_arguments=self.unreadable_arguments,
            lost_device_events=self.lost_device_events,
            cut_off=cut_off,
            notes=notes(self),
        )


def outside_recording(kind: NDArray[np.int8], start: Ints, duration: Ints, is_recording: Mask) -> Mask:
    """Return the events that begin or end further outside of the recording than the recording is long: errors of a clock.

    The recording is the span that the profiler writes, `is_recording`. Without one it extends over the host events, and only
    device events can be outside: the host records their launches and the wait for the last of them. Nine tenths of the starts of
    host and of device events extend it, unless they are as far away: the clocks then have nothing in common.
    """
    ends = start + duration
    result = np.zeros(len(kind), np.bool_)
    on_host = np.isin(kind, _HOST_KINDS)
    base, groups = (is_recording, [on_host]) if is_recording.any() else (on_host, [])
    groups = [group for group in (*groups, np.isin(kind, _DEVICE_KINDS)) if group.any()]
    if not base.any() or not groups:
        return result
    first, last = int(start[base].min()), int(ends[base].max())
    for group in groups:
        count = int(np.count_nonzero(group))
        tail = -(-count // 20)
        ends_of_most = (min(tail, count // 2), count - 1 - min(tail, count // 2))
        low, high = np.partition(start[group], ends_of_most)[list(ends_of_most)].tolist()
        length = max(last - first, high - low, _MIN_OUTSIDE_NS)
        if count > 2 * tail and low <= last + length and high >= first - length:
            first, last = min(first, low), max(last, high)
    length = max(last - first, _MIN_OUTSIDE_NS)
    for group in groups:
        result[group] = (start[group] < first - length) | (ends[group] > last + length)
    return result


def _name_priority(name: str) -> int:
    return next((len(_PREFERRED_THREAD_NAMES) - i for i, part in enumerate(_PREFERRED_THREAD_NAMES) if part in name), 0)
