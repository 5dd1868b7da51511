"""Runs of decoded events to the columns of a `Table`: a few vectorised passes for each run, none over single events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces import dialect, loose
from profiler_kit.traces.arguments import ArgumentColumns, arguments_of, as_text
from profiler_kit.traces.chunks import NOT_DECODED, UndecodedEvents
from profiler_kit.traces.dialect import AnyEvent, Times
from profiler_kit.traces.pairs import Pairs
from profiler_kit.traces.pools import Growing, GrowingSparse, Pool, without
from profiler_kit.traces.runs import NO_PHASE, Run, decode, event_of, phases_of, times_of
from profiler_kit.traces.table import NONE, Kind, Mask, Stream, Table, Thread, TraceInfo
from profiler_kit.traces.times import NO_TIME_NS

_COUNTER: Final = msgspec.json.Decoder(dict[str, int | float | None], strict=False)
_MANY_MALFORMED: Final = 100_000  # each takes as long as twenty sound ones
_MOST_MALFORMED: Final = 0.9
_MOST_COUNTERS: Final = 64  # names of counters that are kept apart
_GROUPS: Final = tuple(dict.fromkeys(dialect.ARGUMENTS.values()))  # of kinds with the same fields
_GROUP_OF_KIND: Final = np.array(
    [_GROUPS.index(dialect.ARGUMENTS[k]) if k in dialect.ARGUMENTS else NONE for k in Kind], dtype=np.int8
)


def _one_of(phases: Iterable[int]) -> Mask:
    """For every byte whether it is one of `phases`."""
    return np.isin(np.arange(256), list(phases))


_FLOWS: Final = _one_of(dialect.FLOWS)
_INSTANTS: Final = _one_of(dialect.INSTANTS)
_LASTING: Final = _one_of((dialect.COMPLETE, dialect.BEGIN, dialect.END))
_MANY: Final = 0.25  # of a run: it is cheaper to read all times as text
_DTYPES: Final = {
    "start_ns": np.int64, "duration_ns": np.int64, "kind": np.int8, "name": np.int32, "category": np.int32, "thread": np.int32,
    "stream": np.int32, "correlation": np.int64, "external": np.int64, "sequence": np.int64, "forward_thread": np.int64,
    "shapes": np.int32, "inputs": np.int32,
}  # fmt: skip
# PyTorch's own name of a thread says more than the program's, which the thread had before
_TELLING_NAMES: Final = ("(pt_autograd", "(pt_")


class Rows:
    """The columns of a trace, growing by runs; `table` ends them."""

    def __init__(self) -> None:
        self.events = self.flows = self.metadata = self.malformed = 0
        self.no_json = 0  # of the malformed ones
        self.names: Pool[str | None] = Pool(no=(None,))
        self.categories: Pool[str] = Pool()
        self.has_phases = False
        self._threads: Pool[tuple[str, str]] = Pool()
        self._streams: Pool[Stream] = Pool()
        self._texts: Pool[bytes] = Pool(no=(b"",))
        self._columns = {name: Growing(dtype) for name, dtype in _DTYPES.items()}
        self._more: dict[str, GrowingSparse] = {}
        self._thread_names: dict[tuple[str, str], str] = {}
        self._pairs = Pairs()
        self._rows = 0
        self._exact = False
        self._kind_of = np.empty(0, dtype=np.int8)  # by category

    @property
    def hopeless(self) -> bool:
        """Whether so many events so far are malformed, and so few not, that the rest is not worth the time."""
        return self.malformed > _MANY_MALFORMED and self.malformed > _MOST_MALFORMED * self.events

    @property
    def of_torch(self) -> bool:
        """Whether any event so far is of a category, or a process, that PyTorch writes."""
        processes = {process for process, _ in self._threads}
        return (
            any(category in dialect.KINDS for category in self.categories)
            or dialect.MEMORY_NAME in self.names
            or not processes.isdisjoint(dialect.PROCESS_KINDS)
        )

    def decode(self, text: bytes) -> Run:
        """The events in `text`, a JSON list. Raises: one of NOT_DECODED."""
        return decode(text, exact=self._exact)

    def add(self, run: Run | UndecodedEvents) -> None:
        """Appends a run's events."""
        if isinstance(run, Run):
            self._add(run.events, run.times)
            return
        events, texts = [], []
        for text in run.texts:
            event = event_of(text)
            if event is None:
                self.malformed += 1
                self.no_json += self.malformed <= _MANY_MALFORMED and not loose.is_json(text)
            else:
                events.append(event)
                texts.append(text)
        self.events += len(run.texts) - len(events)
        self._add(events, lambda: [loose.times_of(text) for text in texts])

    def _add(self, events: Sequence[AnyEvent], texts_of_times: Callable[[], list[Times]]) -> None:
        self.events += len(events)
        phases = phases_of(events)
        flows, metadata = _FLOWS[phases], phases == dialect.METADATA
        nothing = phases == ord(NO_PHASE)
        self.flows += int(np.count_nonzero(flows))
        self.metadata += int(np.count_nonzero(metadata))
        self.malformed += int(np.count_nonzero(nothing))
        self.has_phases |= not nothing.all()
        for index in np.flatnonzero(metadata).tolist():
            self._name_thread(events[index])
        chosen = ~(flows | metadata | nothing)
        rows: list[Any] = list(compress(events, chosen.tolist()))
        if not rows:
            return
        phases = phases[chosen]
        start, duration, unsure = times_of(rows, lambda: compress(texts_of_times(), chosen.tolist()))
        self._exact |= unsure > _MANY
        category = self.categories.numbers([e.cat for e in rows])
        name = self.names.numbers([e.name for e in rows])
        kind = self._kinds(rows, phases, category, name)
        ends = phases == dialect.END
        with np.errstate(over="ignore"):
            good = (start != NO_TIME_NS) & (duration >= 0) & ((name != NONE) | ends)
        if not good.all():
            self.malformed += int(np.count_nonzero(~good))
            rows = list(compress(rows, good.tolist()))
            phases, start, duration, category = phases[good], start[good], duration[good], category[good]
            name, kind, ends = name[good], kind[good], ends[good]
        thread = self._threads_of(rows)
        found, malformed = self._arguments(rows, kind)
        keep = ~(malformed | ends)
        self.malformed += int(np.count_nonzero(malformed & ~ends))
        numbers = self._rows + np.cumsum(keep) - 1
        nested = np.flatnonzero(((phases == dialect.BEGIN) & ~malformed) | ends)
        if len(nested):
            self._pairs.add(phases[nested], thread[nested], numbers[nested], start[nested])
        columns: dict[str, NDArray[Any]] = {
            "start_ns": start, "duration_ns": duration, "kind": kind, "name": name, "category": category, "thread": thread,
            **self._linked(rows, kind, found),
        }  # fmt: skip
        whole = bool(keep.all())
        for column, values in columns.items():
            self._columns[column].add(values if whole else values[keep])
        for at, what in found:
            self._keep_sparse(what, at, keep, numbers)
        self._keep_counters(rows, np.flatnonzero((kind == Kind.COUNTER) & keep), numbers)
        self._rows += int(np.count_nonzero(keep))

    def _kinds(
        self, rows: list[Any], phases: NDArray[np.uint8], category: NDArray[np.int32], name: NDArray[np.int32]
    ) -> NDArray[np.int8]:
        if len(self._kind_of) < len(self.categories):
            known = [int(dialect.KINDS.get(c, Kind.OTHER)) for c in self.categories.values_in_order()]
            self._kind_of = np.array(known, dtype=np.int8)
        kind = self._kind_of[category]
        memory = name == self.names.get(dialect.MEMORY_NAME, len(self.names))
        instant = _INSTANTS[phases]
        lasting = _LASTING[phases]
        kind[~lasting] = Kind.OTHER
        kind[instant] = Kind.INSTANT
        kind[phases == dialect.COUNTER] = Kind.COUNTER
        kind[~lasting & memory] = Kind.MEMORY
        bare = self.categories.get("")
        if bare is not None:
            for index in np.flatnonzero((category == bare) & lasting).tolist():
                kind[index] = dialect.PROCESS_KINDS.get(str(rows[index].pid), Kind.OTHER)
        return kind

    def _threads_of(self, rows: list[Any]) -> NDArray[np.int32]:
        """Each row's thread. Neighbours mostly share one, so only where it changes is it looked up."""
        try:
            process = np.fromiter([e.pid for e in rows], dtype=np.int64, count=len(rows))
            thread = np.fromiter([e.tid for e in rows], dtype=np.int64, count=len(rows))
            changes = np.flatnonzero((process[1:] != process[:-1]) | (thread[1:] != thread[:-1])) + 1
        except (ValueError, OverflowError, TypeError):  # texts that are no numbers
            changes = np.arange(1, len(rows))
        starts = np.concatenate(([0], changes)) if len(rows) else changes[:0]
        numbers = self._threads.numbers([(str(rows[i].pid), str(rows[i].tid)) for i in starts.tolist()])
        return np.repeat(numbers, np.diff(starts, append=len(rows)))

    def _arguments(
        self, rows: list[Any], kind: NDArray[np.int8]
    ) -> tuple[list[tuple[NDArray[np.int64], ArgumentColumns]], Mask]:
        """What the rows say of themselves, by kinds that have the same fields; and whose arguments are none."""
        found = []
        malformed = np.zeros(len(rows), dtype=np.bool_)
        group = _GROUP_OF_KIND[kind]
        for number, fields in enumerate(_GROUPS):
            at = np.flatnonzero(group == number)
            if len(at):
                chosen = rows if len(at) == len(rows) else [rows[i] for i in at.tolist()]
                one = arguments_of([e.args for e in chosen], fields)
                malformed[at[one.malformed]] = True
                found.append((at, one))
        return found, malformed

    def _linked(
        self, rows: list[Any], kind: NDArray[np.int8], found: list[tuple[NDArray[np.int64], ArgumentColumns]]
    ) -> dict[str, NDArray[Any]]:
        """The columns that join events, and the stream."""
        columns: dict[str, NDArray[Any]] = {
            name: np.full(len(rows), 0 if name == "forward_thread" else NONE, dtype=np.int64)
            for name in dialect.NUMBER_COLUMNS
        }
        columns |= {name: np.full(len(rows), NONE, dtype=np.int32) for name in (*dialect.TEXT_COLUMNS, "stream")}
        for at, what in found:
            for name, values in what.numbers.items():
                columns[name][at] = values
            for name, texts in what.texts.items():
                columns[name][at] = self._texts.numbers(texts)
            if what.devices is not None:
                events = [rows[i] for i in at.tolist()]
                columns["stream"][at] = self._streams.numbers([
                    Stream(str(e.pid if device is None else device), str(e.tid if stream is None else stream))
                    for e, (device, stream) in zip(events, what.devices, strict=True)
                ])  # fmt: skip
        return columns

    def _sparse(self, spelling: str, form: str) -> GrowingSparse:
        if spelling not in self._more:
            self._more[spelling] = GrowingSparse(form, as_text)
        return self._more[spelling]

    def _keep_sparse(
        self, what: ArgumentColumns, at: NDArray[np.int64], keep: Mask, numbers: NDArray[np.int64]
    ) -> None:
        for field, inside, values in what.sparse:
            here = at[inside]
            kept = keep[here]
            column = self._sparse(field.spelling, field.form)
            if isinstance(values, list):
                column.add_texts(numbers[here[kept]], list(compress(values, kept.tolist())))
            else:
                column.add_numbers(numbers[here[kept]], values[kept])

    def _keep_counters(self, rows: list[Any], at: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        for index in at.tolist():
            try:
                values = _COUNTER.decode(rows[index].args)
            except NOT_DECODED:
                continue  # what is no number has no place in a column; the event stays
            for series, value in values.items():
                spelling = f"counter {series}"
                if value is not None and (spelling in self._more or len(self._more) < _MOST_COUNTERS):
                    self._sparse(spelling, "float").add_numbers(numbers[[index]], np.array([float(value)]))

    def _name_thread(self, event: AnyEvent) -> None:
        if event.name != "thread_name":
            return
        said = (loose.object_of(bytes(event.args)) or {}).get("name")
        if isinstance(said, str):
            thread = (str(event.pid), str(event.tid))
            if _tells(said) >= _tells(self._thread_names.get(thread, "")):
                self._thread_names[thread] = loose.clean(said.strip())

    def table(self, file: str, info: TraceInfo, *, cut_off: bool, notes: Callable[[Rows], tuple[str, ...]]) -> Table:
        """All of it; nothing can be added afterwards."""
        columns: dict[str, NDArray[Any]] = {name: column.take() for name, column in self._columns.items()}
        more = {spelling: column.take() for spelling, column in self._more.items()}
        dropped = self._pairs.close(columns["duration_ns"])
        if len(dropped):
            keep = np.ones(self._rows, dtype=np.bool_)
            keep[dropped] = False
            renumbered = np.cumsum(keep) - 1
            columns = {name: column[keep] for name, column in columns.items()}
            more = {spelling: without(sparse, keep, renumbered) for spelling, sparse in more.items()}
        self.malformed += self._pairs.backwards
        threads = tuple(Thread(*ids, self._thread_names.get(ids, "")) for ids in self._threads.values_in_order())
        return Table(
            file=file,
            **columns,
            names=tuple(map(str, self.names.values_in_order())),
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
            cut_off=cut_off,
            notes=notes(self),
        )


def _tells(name: str) -> int:
    return next((len(_TELLING_NAMES) - i for i, part in enumerate(_TELLING_NAMES) if part in name), 0)
