"""Any trace that torch.profiler wrote -> where its time went: owners of the device's work, and what it waited for."""

from __future__ import annotations

from profiler_kit.inspection.attribution import own
from profiler_kit.inspection.summary import summarise
from profiler_kit.records.traces import TraceSummary
from profiler_kit.traces.table import Table


def inspect_table(table: Table) -> TraceSummary:
    """Where the time of the trace in `table` went."""
    return summarise(own(table))
