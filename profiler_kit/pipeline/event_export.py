"""Event tables: the events of a trace with their step, phase and module, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from profiler_kit.records.inspect_options import EventFormat

if TYPE_CHECKING:
    import pandas

    from profiler_kit.traces.columns import Events


def export_events(trace: Path, destination: Path | TextIO, event_format: EventFormat) -> int:
    """Write the events of `trace` to a new file, or as CSV to a stream, and return their number.

    Raises:
        TraceError: the trace cannot be read.
        KitError: Parquet needs pyarrow, which is not installed.
    """
    from profiler_kit.traces import exports

    exports.require_format(event_format)
    events = _events(trace)
    exports.write(events, destination, event_format)
    return events.length


def events_frame(trace: Path) -> pandas.DataFrame:
    """The events of `trace` as a data frame. Raises TraceError, or KitError if pandas is not installed."""
    from profiler_kit.traces.columns import data_frame

    return data_frame(_events(trace))


def _events(trace: Path) -> Events:
    from profiler_kit.attribution.engine import attribute
    from profiler_kit.attribution.result import attribution_columns
    from profiler_kit.traces.columns import events
    from profiler_kit.traces.reader import read

    attribution = attribute(read(trace))
    return events(attribution.table, attribution_columns(attribution))
