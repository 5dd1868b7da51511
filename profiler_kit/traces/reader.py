"""Read a trace file into a `Table`: from any writer, of any size, complete or cut off.

The cyclic garbage collector pauses while many acyclic objects are created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from profiler_kit.errors import TraceError
from profiler_kit.traces import dialect, malformed
from profiler_kit.traces.chunks import Document, without_garbage_collection
from profiler_kit.traces.event_runs import Run
from profiler_kit.traces.parts import ReadParts, parts_of
from profiler_kit.traces.recognition import identify
from profiler_kit.traces.rows import MAX_NAME_CHARS, Rows
from profiler_kit.traces.source import BLOCK_BYTES, HINT_GIVE_TRACE, HINT_RECORD_AGAIN, Source
from profiler_kit.traces.table import CALL_STACK, Kind, Table, TraceInfo

_MAX_LISTED_CATEGORIES: Final = 4


def read(
    path: Path,
    *,
    partial: bool = True,
    details: bool = True,
    limit_bytes: int | None = None,
    name: str | None = None,
    block_bytes: int = BLOCK_BYTES,
    read_parts: ReadParts | None = None,
) -> Table:
    """Return the events of the trace at `path`, plain or gzipped (recognized by its first bytes, not by its name).

    `partial`: return the intact part of a file that is cut off or damaged. The table then has `cut_off` set, and a
    note states the place. Without `details`, the sparse columns that attribution does not use are left out: of Python
    calls, launch configurations and waits. `limit_bytes`: the limit on the size of the text; the default is 16 GiB,
    and for a gzip file 400 times its size. `name`: the file's name in the table and in errors; the default is the
    path. `block_bytes`: the size of one read. `read_parts`: reads parts of a plain file at the same time, in other processes.

    Counts: every entry of the event list, see `Table`. Memory: about 100 bytes per event, and a few blocks.

    Raises: TraceError for a file that cannot be read, is not a trace, or has no events; without `partial` also for
    one that is cut off.
    """
    where = name or str(path)
    with (
        Source(path, where=where, limit_bytes=limit_bytes, block_bytes=block_bytes) as source,
        without_garbage_collection(),
    ):
        rows = Rows(details=details)

        def in_parts(start: int) -> int:
            """Add the events from `start` on that parts hold, and return where the next event begins."""
            parts = parts_of(path, start, details=details) if read_parts is not None and source.is_plain else []
            for part, later in zip(parts, read_parts(parts) if read_parts is not None and parts else (), strict=False):
                if not isinstance(later, Rows):
                    break  # an unusual part, or a lost process: this process reads the rest
                rows.extend(later)
                start = part.end + 1
            return start

        document: Document[Run] = Document(source, rows.decode, dialect.HEADER_KEYS, in_parts)
        for run in document.runs():
            rows.add(run)
            if rows.is_mostly_malformed:
                break
        _require_trace(document, rows, source, partial=partial)
        table = rows.table(
            where,
            _info(document.values, hardware_counters=dialect.COUNTERS_OF_KERNELS in rows.categories),
            cut_off=document.cut_off or document.damage is not None,
            notes=lambda rows: _notes(document, rows, source),
        )
    return _complete_info(table)


def _require_trace(document: Document[Run], rows: Rows, source: Source, *, partial: bool) -> None:
    """Raise TraceError if the file is not a trace, or too little of one."""
    where = source.where
    if not document.first.strip() and not source.damage:
        raise TraceError("the file is empty", where=where, hint=HINT_RECORD_AGAIN)
    guess = identify(document.first, document.keys)
    guess_text = f"; it seems to be {guess}" if guess else ""
    cut_reason = source.damage or f"the JSON is cut off after {source.text_bytes:,} bytes"
    is_usable = partial and rows.events > rows.malformed
    events = f"the first {rows.events:,} entries in '{dialect.EVENTS_KEY}'"
    categories = [category for category in rows.categories.values_in_order() if category]
    listed = ", ".join(categories[:_MAX_LISTED_CATEGORIES]) or "none"
    faults = (
        (
            document.cut_off and not is_usable,
            f"{cut_reason}{guess_text}",
            HINT_GIVE_TRACE if guess else HINT_RECORD_AGAIN,
        ),
        (document.damage and not is_usable, f"not JSON: {document.damage}{guess_text}", HINT_GIVE_TRACE),
        (not document.lists, f"not a trace: no '{dialect.EVENTS_KEY}' list{guess_text}", HINT_GIVE_TRACE),
        (not rows.events, "the trace holds no events", HINT_RECORD_AGAIN),
        (
            rows.invalid_json == rows.events,
            f"not JSON: no element of the event list is valid{guess_text}",
            HINT_GIVE_TRACE,
        ),
        (
            not rows.has_phases,
            f"not a trace: no element of '{dialect.EVENTS_KEY}' has a 'ph'{guess_text}",
            HINT_GIVE_TRACE,
        ),
        (rows.is_mostly_malformed, f"not a trace: {rows.malformed:,} of {events} are malformed", HINT_GIVE_TRACE),
        (
            not rows.is_torch_trace,
            f"a Chrome trace, but not of PyTorch: none of its {rows.events:,} events has a category of torch.profiler"
            f" (categories: {listed})",
            HINT_GIVE_TRACE,
        ),
    )
    for is_fault, message, hint in faults:
        if is_fault:
            raise TraceError(message, where=where, hint=hint)


def _notes(document: Document[Run], rows: Rows, source: Source) -> tuple[str, ...]:
    """Return notes on how the file was read."""
    notes = []
    if document.cut_off:
        reason = source.damage or f"the JSON is cut off after {source.text_bytes:,} bytes"
        notes.append(f"{_capitalized(reason)}. The {rows.events:,} events before that were read.")
    if document.damage:
        notes.append(f"The JSON is invalid: {document.damage}. The {rows.events:,} events before that were read.")
    long_names = sum(len(name) > MAX_NAME_CHARS for name in rows.names if name is not None)
    if long_names:
        notes.append(f"Names longer than {MAX_NAME_CHARS:,} characters were cut: {long_names:,}.")
    if document.lists > 1:
        notes.append(f"The file has {document.lists} event lists. They were read as one.")
    if dialect.COUNTERS_OF_KERNELS in rows.categories:
        notes.append(
            "Recorded with hardware counters: kernels were replayed one by one, so the trace has no device timeline, and "
            "host times include the replays."
        )
    return tuple(notes)


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _info(values: Mapping[str, bytes], *, hardware_counters: bool) -> TraceInfo:
    """Return the properties in the document's header. Values of an unexpected type are ignored."""

    def header_value(key: str) -> Any:
        return malformed.value_of(values.get(key, b"null"))

    distributed = header_value("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    devices = header_value("deviceProperties")
    base = header_value("baseTimeNanoseconds")
    return TraceInfo(
        rank=_count(distributed.get("rank")),
        world_size=_count(distributed.get("world_size")),
        backend=malformed.clean(str(distributed.get("backend") or "")),
        devices=tuple(
            malformed.clean(str(device.get("name", ""))) if isinstance(device, dict) else ""
            for device in (devices if isinstance(devices, list) else ())
        ),
        base_ns=_count(base) or 0,
        record_shapes=bool(_count(header_value("record_shapes"))),
        with_stack=bool(_count(header_value("with_stack"))),
        profile_memory=bool(_count(header_value("profile_memory"))),
        hardware_counters=hardware_counters,
    )


def _count(value: Any) -> int | None:
    """Return a number that may be quoted; None if it is not a number, or too large."""
    try:
        return int(value) if isinstance(value, (int, str)) and abs(int(value)) < 2**63 else None
    except ValueError:
        return None


def _complete_info(table: Table) -> Table:
    """Return `table` with recording options inferred from the events, if the header does not state them."""
    info = replace(
        table.info,
        record_shapes=table.info.record_shapes or bool((table.shapes >= 0).any()),
        with_stack=table.info.with_stack or bool(table.of(Kind.PYTHON).any()) or CALL_STACK in table.more,
        profile_memory=table.info.profile_memory or bool(table.of(Kind.MEMORY).any()),
    )
    return replace(table, info=info)
