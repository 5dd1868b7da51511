"""What a reader of one trace should know before believing its figures."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler_kit.attribution.idle import CAUSE_NUMBERS, Gaps
from profiler_kit.attribution.launches import Launches
from profiler_kit.attribution.ownership import Owned
from profiler_kit.attribution.timeline import Timeline
from profiler_kit.records.traces import IdleCause
from profiler_kit.traces.table import NONE, Kind
from profiler_kit.units import duration

_UNEXPLAINED: Final = 0.05  # of the span

# Clocks of device and host are synchronised to a few us; work that begins before its launch by more than that shows drift.
_CLOCK_SKEW_NS: Final = 10_000

# What the host spends on each operator; the profiler adds to it: 1.4 times with operators alone, 1.9 times with everything.
_HOSTS: Final[tuple[IdleCause, ...]] = ("op dispatch", "python", "launch latency")
_HOST_BOUND: Final = 0.25  # of the span; then steps depend on it


def remarks(owned: Owned, line: Timeline, made: Launches, idle: Gaps) -> tuple[str, ...]:
    """Sentences on what the trace lacks or holds beside the ordinary, those of the reader and of the owners first."""
    table = owned.table
    notes = [*table.notes, *owned.notes]
    if table.malformed:
        notes.append(f"{table.malformed:,} entries of the file are no events and are left out")
    if table.unpaired:
        notes.append(f"{table.unpaired:,} begin or end events have no partner and are left out")
    if not len(line.start):
        notes.append(_without_device(owned))
        return tuple(dict.fromkeys(notes))
    devices = {table.streams[i].device for i in np.unique(line.stream[line.stream >= 0]).tolist()}
    if len(devices) > 1:
        notes.append(f"{len(devices)} devices share one timeline here: it is idle only where all of them are")
    hosts = int(idle.ns[[CAUSE_NUMBERS[cause] for cause in _HOSTS]].sum())
    if hosts > _HOST_BOUND * line.span_ns:
        notes.append(
            f"for {duration(hosts)} of {duration(line.span_ns)} the device waits for the host's own work, and recording a trace "
            "slows the host: without the profiler this idle time is less and steps are shorter"
        )
    launched = owned.device.launch[idle.ended_by] != NONE
    unexplained = int(idle.ns[CAUSE_NUMBERS["unknown"], launched].sum())
    if unexplained > _UNEXPLAINED * line.span_ns:
        notes.append(
            f"for {duration(unexplained)} of {duration(line.span_ns)} nothing in the trace ran although work was launched: "
            "the device may have done what is not in the trace (launched before it began, left out of it, of another process)"
        )
    overlap = int((line.end - line.start).sum()) - line.busy_ns
    if overlap:
        notes.append(
            f"{duration(overlap)} of device work ran beside other work: durations add up to more than the busy time"
        )
    early = made.start - made.begun
    if len(early) and int(early.max()) > _CLOCK_SKEW_NS:
        notes.append(
            f"{int((early > _CLOCK_SKEW_NS).sum()):,} pieces of work begin up to {duration(int(early.max()))} before "
            "their launch: the clocks of host and device differ by as much"
        )
    if not len(made.start):
        notes.append("no launch is in the trace: what the device waited for cannot be told")
    return tuple(dict.fromkeys(notes))


def _without_device(owned: Owned) -> str:
    if bool((owned.table.kind == Kind.OPERATOR).any()):
        return "no device work: figures are the operators' own time on the host"
    return "neither device work nor operators: nothing to add up"
