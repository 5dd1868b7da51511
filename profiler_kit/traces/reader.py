"""A trace file to a `Table`: whatever wrote it, of any size, cut off or whole."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from profiler_kit.errors import TraceError
from profiler_kit.traces import dialect, loose
from profiler_kit.traces.chunks import Document
from profiler_kit.traces.recognition import identify
from profiler_kit.traces.rows import Rows
from profiler_kit.traces.runs import Run
from profiler_kit.traces.source import BLOCK_BYTES, HINT_AGAIN, HINT_WHAT, Source
from profiler_kit.traces.table import CALL_STACK, Kind, Table, TraceInfo

_SHOWN_CATEGORIES: Final = 4


def read(
    path: Path,
    *,
    partial: bool = True,
    limit_bytes: int | None = None,
    name: str | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Table:
    """The events of the trace at `path`, plain or gzipped (told by its first bytes, not by its name).

    `partial`: of a file that is cut off or damaged, what was whole before; the table says `cut_off`, and a note where.
    `limit_bytes`: how much text it may hold; by default 16 GiB, and of a gzip file no more than 400 times its size.
    `name`: what the table and errors call it; by default the path. `block_bytes`: how much is read at once.

    Counts: every entry of the list of events, see `Table`. Memory: about 100 bytes an event, and a few blocks.

    Raises: TraceError for a file that cannot be read, is no trace, or has no event;
    without `partial` also for one that is cut off.
    """
    where = name or str(path)
    with (
        Source(path, where=where, limit_bytes=limit_bytes, block_bytes=block_bytes) as source,
        _no_garbage_collection(),
    ):
        rows = Rows()
        document: Document[Run] = Document(source, rows.decode, dialect.HEADER_KEYS)
        for run in document.runs():
            rows.add(run)
            if rows.hopeless:
                break
        _check(document, rows, source, partial=partial)
        table = rows.table(
            where,
            _info(document.values),
            cut_off=document.cut_off or document.damage is not None,
            notes=lambda rows: _notes(document, rows, source),
        )
    return _told_by_events(table)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """The cyclic collector off: it walks millions of fresh, acyclic objects again and again, for half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _check(document: Document[Run], rows: Rows, source: Source, *, partial: bool) -> None:
    """Raises: TraceError for what is no trace, or not enough of one."""
    where = source.where
    if not document.first.strip() and not source.damage:
        raise TraceError("the file is empty", where=where, hint=HINT_AGAIN)
    guess = identify(document.first, document.keys)
    seems = f"; it seems to be {guess}" if guess else ""
    cut = source.damage or f"the JSON is cut off after {source.text_bytes:,} bytes"
    enough = partial and rows.events > rows.malformed
    events = f"the first {rows.events:,} entries in '{dialect.EVENTS_KEY}'"
    categories = [category for category in rows.categories.values_in_order() if category]
    shown = ", ".join(categories[:_SHOWN_CATEGORIES]) or "none"
    faults = (
        (document.cut_off and not enough, f"{cut}{seems}", HINT_WHAT if guess else HINT_AGAIN),
        (document.damage and not enough, f"not JSON: {document.damage}{seems}", HINT_WHAT),
        (not document.lists, f"not a trace: no '{dialect.EVENTS_KEY}' list{seems}", HINT_WHAT),
        (not rows.events, "the trace holds no event", HINT_AGAIN),
        (rows.no_json == rows.events, f"not JSON: nothing in its list of events is{seems}", HINT_WHAT),
        (not rows.has_phases, f"not a trace: nothing in '{dialect.EVENTS_KEY}' has a 'ph'{seems}", HINT_WHAT),
        (rows.hopeless, f"not a trace: {rows.malformed:,} of {events} are no events", HINT_WHAT),
        (
            not rows.of_torch,
            f"a Chrome trace, but not of PyTorch: none of its {rows.events:,} events has a category that torch.profiler writes"
            f" (they have: {shown})",
            HINT_WHAT,
        ),
    )
    for applies, message, hint in faults:
        if applies:
            raise TraceError(message, where=where, hint=hint)


def _notes(document: Document[Run], rows: Rows, source: Source) -> tuple[str, ...]:
    """What a reader should know of how the file was read."""
    notes = []
    if document.cut_off:
        why = source.damage or f"the JSON is cut off after {source.text_bytes:,} bytes"
        notes.append(f"{why}: the {rows.events:,} events before are here")
    if document.damage:
        notes.append(f"not JSON from there on: {document.damage}; the {rows.events:,} events before are here")
    if document.lists > 1:
        notes.append(f"the file has {document.lists} lists of events, read as one")
    if dialect.COUNTERS_OF_KERNELS in rows.categories:
        notes.append(
            "recorded with hardware counters: kernels ran one by one, measured by themselves; there is no device timeline"
        )
    return tuple(notes)


def _info(values: Mapping[str, bytes]) -> TraceInfo:
    """What the document says beside the events; what is of another type than it should be is not there."""

    def said(key: str) -> Any:
        return loose.value_of(values.get(key, b"null"))

    distributed = said("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    devices = said("deviceProperties")
    base = said("baseTimeNanoseconds")
    return TraceInfo(
        rank=_count(distributed.get("rank")),
        world_size=_count(distributed.get("world_size")),
        backend=loose.clean(str(distributed.get("backend") or "")),
        devices=tuple(
            loose.clean(str(device.get("name", ""))) if isinstance(device, dict) else ""
            for device in (devices if isinstance(devices, list) else ())
        ),
        base_ns=_count(base) or 0,
        record_shapes=bool(_count(said("record_shapes"))),
        with_stack=bool(_count(said("with_stack"))),
        profile_memory=bool(_count(said("profile_memory"))),
    )


def _count(value: Any) -> int | None:
    """A number that may be quoted; None for what is none, or none that fits."""
    try:
        return int(value) if isinstance(value, (int, str)) and abs(int(value)) < 2**63 else None
    except ValueError:
        return None


def _told_by_events(table: Table) -> Table:
    """`table` with what its events show of how it was recorded, where the header did not say."""
    info = replace(
        table.info,
        record_shapes=table.info.record_shapes or bool((table.shapes >= 0).any()),
        with_stack=table.info.with_stack or bool(table.of(Kind.PYTHON).any()) or CALL_STACK in table.more,
        profile_memory=table.info.profile_memory or bool(table.of(Kind.MEMORY).any()),
    )
    return replace(table, info=info)
