"""The events of a trace with their owners, as a table for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from profiler_kit.records.trace_asks import EventFormat

if TYPE_CHECKING:
    import pandas

    from profiler_kit.traces.columns import Events


def export_events(trace: Path, to: Path | TextIO, chosen: EventFormat) -> int:
    """Writes the events of the trace in `trace` as a table to a new file, or CSV to a stream; returns how many.

    Raises: TraceError, KitError where Parquet is asked for and pyarrow is not installed.
    """
    from profiler_kit.traces import exports

    exports.check(chosen)
    events = _events(trace)
    exports.write(events, to, chosen)
    return events.length


def events_frame(trace: Path) -> pandas.DataFrame:
    """The same as a data frame. Raises: TraceError, KitError where pandas is not installed."""
    from profiler_kit.traces.columns import data_frame

    return data_frame(_events(trace))


def _events(trace: Path) -> Events:
    from profiler_kit.attribution.engine import attribute
    from profiler_kit.attribution.result import owner_columns
    from profiler_kit.traces.columns import events
    from profiler_kit.traces.reader import read

    attribution = attribute(read(trace))
    return events(attribution.table, owner_columns(attribution))
