"""The host's waits for the device, by caller and by phase.

A wait counts for the phase of the call. The work that it waited for seldom belongs to the same phase.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import BACK_TO_BACK_NS, CAUSE_NUMBERS, Gaps, Timeline
from profiler_kit.attribution.host_activity import user_call
from profiler_kit.attribution.host_time import Launches, Waits, stopwatch_threads
from profiler_kit.attribution.result import Attribution, climb, phase_name
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.records.traces import FULL_QUEUE_NAME, IdleCause, SyncWait, WaitByPhase
from profiler_kit.traces.intervals import Intervals, distinct_rows, overlap, sum_by, union
from profiler_kit.traces.table import NONE, Ids, Ints

_ATEN: Final = re.compile(r"\Aaten::")
# Causes of idle time that the host could have removed by launching during a wait.
AFTER_WAIT_CAUSES: Final[tuple[IdleCause, ...]] = ("synchronization", "op dispatch", "python", "launch latency")


class _HostWaits(NamedTuple):
    """Waiting calls, followed by launches that a full queue blocked."""

    position: Ids
    start: Ints
    end: Ints


def _all_host_waits(waits: Waits, launches: Launches) -> _HostWaits:
    """Return all calls in which the host waited for the device."""
    blocked = np.flatnonzero((launches.blocked > 0) & ~np.isin(launches.position, waits.position))
    end = launches.end[blocked]
    return _HostWaits(
        np.concatenate((waits.position, launches.position[blocked])),
        np.concatenate((waits.start, end - launches.blocked[blocked])),
        np.concatenate((waits.end, end)),
    )


class PhaseWaits(NamedTuple):
    """The host's waits in each phase (an index of TRACE_PHASES, NONE for no phase), each instant once.

    `position`: the waiting calls. `elsewhere_ns`: waits on threads whose time no phase counts.
    """

    position: Ids
    intervals: dict[int, Intervals]
    elsewhere_ns: int


def phase_waits(attribution: Attribution, waits: Waits, launches: Launches) -> PhaseWaits:
    """Return the host's waits by phase, on the threads that `phase_intervals` counts."""
    position, start, end = _all_host_waits(waits, launches)
    counted = np.isin(attribution.host.thread[position], stopwatch_threads(attribution))
    phase_of = attribution.host.phase[position]
    intervals = {
        phase: union(start[counted & (phase_of == phase)], end[counted & (phase_of == phase)])
        for phase in np.unique(phase_of[counted]).tolist()
    }
    return PhaseWaits(position[counted], intervals, int((end - start)[~counted].sum()))


def sync_waits(
    attribution: Attribution, timeline: Timeline, waits: Waits, launches: Launches, gaps: Gaps
) -> tuple[SyncWait, ...]:
    """Return the host's waits by caller, longest first."""
    position, start, end = _all_host_waits(waits, launches)
    if not len(position):
        return ()
    waiting_call = np.full(len(position), NONE, np.int32)
    waiting_call[: len(waits.position)] = _waiting_calls(attribution, waits.position)
    # Each ns of a wait counts for the phase whose kernels ran then, or for none if the device was idle.
    names, host, phases = attribution.table.names, attribution.host, attribution.device.phase
    split = np.zeros((len(TRACE_PHASES) + 1, len(position)), np.int64)
    for number in np.unique(phases[phases != NONE]).tolist():
        phase_intervals = timeline.intervals_of(phases == number)
        split[number] = overlap(phase_intervals, start, end)
    split[-1] = end - start - split.sum(axis=0)
    call = attribution.table.name[host.rows[position]]
    groups, group = distinct_rows([waiting_call, call, host.phase[position]])
    parts = np.stack([sum_by(group, row, len(groups)) for row in split])
    calls = np.bincount(group, minlength=len(groups))
    idle = sum_by(group, _idle_after(gaps, start, end, len(waits.position)), len(groups))
    longest = [int(np.argmax(np.where(group == i, end - start, -1))) for i in range(len(groups))]
    entries = [
        SyncWait(
            name=names[name_index] if name_index != NONE else FULL_QUEUE_NAME,
            call=names[call_name],
            phase=phase_name(phase),
            calls=int(calls[i]),
            wait_ns=int(parts[:, i].sum()),
            waited_for=tuple(
                WaitByPhase(phase=phase_name(number if number < len(TRACE_PHASES) else NONE), ns=int(parts[number, i]))
                for number in np.argsort(-parts[:, i], kind="stable").tolist()
                if parts[number, i]
            ),
            idle_ns=int(idle[i]),
            source=user_call(attribution, int(position[longest[i]])),
        )
        for i, (name_index, call_name, phase) in enumerate(groups.tolist())
    ]
    return tuple(sorted(entries, key=lambda wait: -wait.wait_ns))


def _idle_after(gaps: Gaps, start: Ints, end: Ints, waiting: int) -> Ints:
    """Return the idle time that each wait from `start` to `end` caused: that of the gap in which the wait ended.

    It is at most as long as the wait, and of the causes that launching earlier would remove. Of several waits that end in one
    gap, the first counts. Only the first `waiting` waits count; the others are launches that a full queue blocked.
    """
    result = np.zeros(len(start), np.int64)
    if not len(gaps.start):
        return result
    removable = gaps.ns[[CAUSE_NUMBERS[cause] for cause in AFTER_WAIT_CAUSES]].sum(axis=0)
    gap = np.searchsorted(gaps.start, end[:waiting] + BACK_TO_BACK_NS, side="right") - 1
    inside = np.flatnonzero((gap >= 0) & (end[:waiting] <= gaps.end[gap]))
    order = inside[np.argsort(start[inside], kind="stable")]
    _, first = np.unique(gap[order], return_index=True)
    wait = order[first]
    result[wait] = np.minimum(removable[gap[wait]], (end - start)[wait])
    return result


def _waiting_calls(attribution: Attribution, position: Ids) -> Ids:
    """Return the name (an index of the table's names) of the call behind each wait.

    This is the outermost operator inside any autograd node, else the Python call, else the runtime call itself:
    `aten::item`, not the `aten::_local_scalar_dense` inside it.
    """
    table, host = attribution.table, attribution.host

    def enclosing_operator(operator: Ids) -> Ids:
        parent = host.enclosing(host.operator, operator)
        return np.where((parent != NONE) & table.named(host.rows[parent], _ATEN), parent, NONE).astype(np.int32)

    operator = host.operator[position]
    operator[operator != NONE] = climb(operator[operator != NONE], enclosing_operator)
    call = np.where(operator != NONE, operator, host.python[position])
    return table.name[host.rows[np.where(call != NONE, call, position)]]
