"""A table's events as columns for other programs: names instead of indices, missing values distinct from zeros."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from profiler_kit.command_lines import install_command
from profiler_kit.errors import KitError
from profiler_kit.traces.table import NONE, Kind, Mask, Table

if TYPE_CHECKING:
    import pandas

CHUNK_ROWS: Final = 50_000

KIND_NAMES: Final = tuple(kind.name.lower() for kind in Kind)
_NON_WORD: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Column:
    """One column: `values` of all rows, or of `rows` alone, which ascend. `none` is the value that marks a missing one.

    With `labels`, the values are indices of them, and the column is text.
    """

    name: str
    values: NDArray[Any]
    labels: tuple[str, ...] | None = None
    rows: NDArray[np.integer[Any]] | None = None
    none: int | None = NONE

    def part(self, start: int, stop: int) -> tuple[NDArray[Any], Mask]:
        """Return the values of the rows from `start` up to `stop`, and which of them are present."""
        if self.rows is None:
            values = self.values[start:stop]
            return values, np.ones(len(values), dtype=np.bool_) if self.none is None else values != self.none
        first, last = np.searchsorted(self.rows, (start, stop))
        present = np.zeros(stop - start, dtype=np.bool_)
        values = np.zeros(stop - start, dtype=self.values.dtype)
        positions = self.rows[first:last] - start
        values[positions] = self.values[first:last]
        present[positions] = True if self.none is None or self.labels is None else self.values[first:last] != self.none
        return values, present

    def plain(self, start: int, stop: int) -> list[int | float | str | None]:
        """Return the same as Python values, with None for missing ones."""
        values, present = self.part(start, stop)
        if self.labels is not None:
            labels = self.labels
            pairs = zip(values.tolist(), present.tolist(), strict=True)
            return [labels[value] if is_present else None for value, is_present in pairs]
        plain: list[int | float | str | None] = values.tolist()
        for i in np.flatnonzero(~present).tolist():
            plain[i] = None
        return plain


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Events:
    """The events of one trace for other programs: `columns` of `length` rows, and properties of the trace (`about`)."""

    columns: tuple[Column, ...]
    length: int
    about: tuple[tuple[str, str | int], ...] = ()

    def chunks(self, rows: int = CHUNK_ROWS) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each part of the rows, to process some at a time."""
        for start in range(0, self.length, rows):
            yield start, min(start + rows, self.length)


def events(table: Table, attribution_columns: Iterable[Column] = ()) -> Events:
    """Return `table` for other programs, with the additional columns `owners`."""
    columns = [*_columns(table)]
    used_names = {column.name for column in columns}
    for column in attribution_columns:
        used_names.add(column.name)
        columns.append(column)
    for key, sparse in table.more.items():
        columns.append(
            Column(
                name=_unique_name(_identifier(key), used_names),
                values=sparse.values,
                labels=sparse.texts or None,
                rows=sparse.rows,
                none=NONE if sparse.texts else None,
            )
        )
    info = table.info
    about: list[tuple[str, str | int]] = [
        ("file", table.file),
        ("base_ns", info.base_ns),
        ("events", table.events),
        ("rows", len(table)),
        ("flows", table.flows),
        ("metadata", table.metadata),
        ("malformed", table.malformed),
        ("cut_off", int(table.cut_off)),
        ("devices", ", ".join(info.devices)),
    ]
    about += [
        (name, value) for name, value in (("rank", info.rank), ("world_size", info.world_size)) if value is not None
    ]
    return Events(columns=tuple(columns), length=len(table), about=tuple(about))


def _columns(table: Table) -> Iterator[Column]:
    yield Column(name="start_ns", values=table.start_ns, none=None)
    yield Column(name="duration_ns", values=table.duration_ns, none=None)
    yield Column(name="name", values=table.name, labels=table.names)
    yield Column(name="kind", values=table.kind, labels=KIND_NAMES)
    yield Column(name="category", values=table.category, labels=table.categories)
    yield _pool_column("process", table.thread, table.threads, lambda thread: thread.process)
    yield _pool_column("thread", table.thread, table.threads, lambda thread: thread.thread)
    yield _pool_column("device", table.stream, table.streams, lambda stream: stream.device)
    yield _pool_column("stream", table.stream, table.streams, lambda stream: stream.stream)
    yield Column(name="correlation", values=table.correlation)
    yield Column(name="external_id", values=table.external)
    yield Column(name="sequence", values=table.sequence)
    yield used_texts("shapes", table.shapes, table.texts, _compact)
    yield used_texts("inputs", table.inputs, table.texts, _compact)


def _pool_column(name: str, positions: NDArray[Any], pool: Sequence[Any], text: Callable[[Any], str]) -> Column:
    """Return a column of one field of the pooled objects at `positions`, with each distinct text once."""
    labels: dict[str, int] = {}
    numbers = np.array([labels.setdefault(text(each), len(labels)) for each in pool] + [NONE], dtype=np.int32)
    return Column(name=name, values=numbers[positions], labels=tuple(labels))  # index NONE (-1) selects the last entry


def used_texts(
    name: str, positions: NDArray[Any], texts: Sequence[str], format_text: Callable[[str], str] = str
) -> Column:
    """Return a column of the `texts` at `positions`. Its labels are only the used texts, converted by `format_text`."""
    used = np.unique(positions[positions != NONE])
    labels: dict[str, int] = {}
    numbers = np.full(len(texts) + 1, NONE, dtype=np.int32)
    numbers[used] = [labels.setdefault(format_text(texts[i]), len(labels)) for i in used.tolist()]
    return Column(name=name, values=numbers[positions], labels=tuple(labels))


def _compact(text: str) -> str:
    """Return JSON on one line, whatever its spacing; other text unchanged."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _identifier(key: str) -> str:
    """Return `key` as a name that needs no quotes in SQL or Python: ``Total Allocated`` gives ``total_allocated``."""
    word = _NON_WORD.sub("_", key.lower()).strip("_")
    return word if word[:1].isalpha() else f"arg_{word}"


def _unique_name(name: str, used_names: set[str]) -> str:
    candidate, number = name, 2
    while candidate in used_names:
        candidate, number = f"{name}_{number}", number + 1
    used_names.add(candidate)
    return candidate


# ---- data frames; pandas is imported on first use


def data_frame(events: Events) -> pandas.DataFrame:
    """Return the events as a data frame with one row each and the columns of docs/events.md.

    The index is the row number; ``attrs`` holds the properties of the whole trace. Texts are categories. Integers
    with missing values are nullable (``Int64``), so that none turns into a float.

    Raises: KitError if pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise KitError(
            "data frames need pandas, which is not installed", hint=install_command("profiler-kit[pandas]")
        ) from error
    columns = {column.name: _series(column, events.length, pandas) for column in events.columns}
    frame: pandas.DataFrame = pandas.DataFrame(columns, index=pandas.RangeIndex(events.length, name="row"), copy=False)
    frame.attrs.update(events.about)
    return frame


def _series(column: Column, length: int, pandas: Any) -> Any:
    values, present = column.part(0, length)
    if column.labels is not None:
        # Names that differ only in invalid bytes decode to equal texts.
        codes, labels = pandas.factorize(np.array(column.labels, dtype=object))
        codes = np.append(codes, -1)[np.where(present, values, -1)]
        return pandas.Categorical.from_codes(codes, categories=pandas.Index(labels, dtype=object))
    if present.all():
        return values
    if values.dtype.kind == "f":
        return np.where(present, values, np.nan)
    return pandas.arrays.IntegerArray(values, ~present)
