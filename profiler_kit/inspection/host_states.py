"""What the host did, thread by thread, as stretches: what an idle device waited for."""

from __future__ import annotations

import numpy as np

from profiler_kit.inspection.ownership import PHASE_NUMBERS, Host, Owned
from profiler_kit.inspection.spans import Spans, join, none, subtract, union
from profiler_kit.inspection.waits import Waits
from profiler_kit.records.traces import IdleCause
from profiler_kit.traces.table import NONE, Kind, Mask


def are_operators(host: Host) -> Mask:
    """Which host events are operators: not marks, which profilers of 2021 wrote as such."""
    itself: Mask = host.operator == np.arange(len(host.rows))
    return itself


def main_thread(owned: Owned) -> int:
    """The thread that runs the training loop: the one with most operators outside of autograd's nodes; NONE without any."""
    table, host = owned.table, owned.host
    runtime = table.kind[host.rows] == Kind.RUNTIME
    for mask in (are_operators(host) & (host.node == NONE), ~runtime, runtime):
        counts = np.bincount(table.thread[host.rows[mask]], minlength=1)
        if counts.any():
            return int(counts.argmax())
    return NONE


def states(owned: Owned, waits: Waits, thread: int, main: int) -> list[tuple[IdleCause, Spans]]:
    """What the host did while `thread` was on its way to a launch, as stretches that do not overlap each other."""
    states: list[tuple[IdleCause, Spans]] = []
    taken = none()
    for number in dict.fromkeys((thread, main)):
        for cause, spans in thread_states(owned, waits, number):
            states.append((cause, subtract(spans, taken)))
            taken = join(taken, spans)
    return states


def thread_states(owned: Owned, waits: Waits, thread: int) -> list[tuple[IdleCause, Spans]]:
    """What one thread did, what explains most first; the stretches overlap."""
    table, host = owned.table, owned.host
    mine = table.thread[host.rows] == thread
    waited = waits.thread == thread
    return [
        ("synchronisation", union(waits.start[waited], waits.end[waited], ordered=True)),
        ("waiting for data", stretches(owned, mine & (host.phase == PHASE_NUMBERS["data"]))),
        ("op dispatch", stretches(owned, mine & are_operators(host))),
    ]


def stretches(owned: Owned, mask: Mask) -> Spans:
    """Where the host events of `mask`, all of one thread, run."""
    rows = owned.host.rows[mask]
    start = owned.table.start_ns[rows]
    return union(start, start + owned.table.duration_ns[rows], ordered=True)
