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
    found = _events(trace)
    exports.write(found, to, chosen)
    return found.length


def events_frame(trace: Path) -> pandas.DataFrame:
    """The same as a data frame. Raises: TraceError, KitError where pandas is not installed."""
    from profiler_kit.attribution import frames
    from profiler_kit.attribution.attribution import own
    from profiler_kit.traces.reader import read

    return frames.events_frame(own(read(trace)))


def _events(trace: Path) -> Events:
    from profiler_kit.attribution.attribution import own
    from profiler_kit.attribution.frames import owner_columns
    from profiler_kit.traces.columns import events
    from profiler_kit.traces.reader import read

    owned = own(read(trace))
    return events(owned.table, owner_columns(owned))
