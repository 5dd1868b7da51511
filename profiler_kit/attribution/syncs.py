"""Who made the host wait for the device, and for whose kernels: a wait is seldom for the work of the phase it stands in."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler_kit.attribution.launches import Launches
from profiler_kit.attribution.ownership import Owned
from profiler_kit.attribution.phase_names import phase_name
from profiler_kit.attribution.spans import overlap, sum_by
from profiler_kit.attribution.timeline import Timeline
from profiler_kit.attribution.waits import Waits
from profiler_kit.records.traces import TRACE_PHASES, SyncWait, WaitedFor
from profiler_kit.traces.table import NONE, Ids, Ints

FULL_QUEUE: Final = "(launch queue full)"  # whose waits are those of launches that found no place

_DEEPEST: Final = 64  # operators around a call: further out none says anything of it


def sync_waits(owned: Owned, line: Timeline, waits: Waits, made: Launches) -> tuple[SyncWait, ...]:
    """The host's waits by who made them, longest first."""
    stuck = _stuck(waits, made)
    position = np.concatenate((waits.position, made.position[stuck]))
    start = np.concatenate((waits.start, made.end[stuck] - made.blocked[stuck]))
    end = np.concatenate((waits.end, made.end[stuck]))
    if not len(position):
        return ()
    # every ns between start and end falls to the phase whose kernels ran then, to none where the device was idle
    split = np.zeros((len(TRACE_PHASES) + 1, len(position)), np.int64)
    for number in np.unique(owned.device.phase[owned.device.phase != NONE]).tolist():
        split[number] = overlap(line.charged(owned.device.phase == number), start, end)
    split[-1] = end - start - split.sum(axis=0)
    names = owned.table.names
    who = np.concatenate((_made_by(owned, waits.position), np.full(len(stuck), NONE, np.int32)))
    call = owned.table.name[owned.host.rows[position]]
    groups, group = np.unique(np.stack((who, call, owned.host.phase[position])), axis=1, return_inverse=True)
    group = group.reshape(-1)
    parts = np.stack([sum_by(group, row, groups.shape[1]) for row in split])
    calls = np.bincount(group, minlength=groups.shape[1])
    found = [
        SyncWait(
            name=names[by] if by != NONE else FULL_QUEUE,
            call=names[what],
            phase=phase_name(phase),
            calls=int(calls[i]),
            wait_ns=int(parts[:, i].sum()),
            waited_for=tuple(
                WaitedFor(phase=phase_name(number if number < len(TRACE_PHASES) else NONE), ns=int(parts[number, i]))
                for number in np.argsort(-parts[:, i], kind="stable").tolist()
                if parts[number, i]
            ),
        )
        for i, (by, what, phase) in enumerate(groups.T.tolist())
    ]
    return tuple(sorted(found, key=lambda wait: -wait.wait_ns))


def wait_by_phase(owned: Owned, waits: Waits, made: Launches) -> Ints:
    """Waiting ns of the host in each of TRACE_PHASES: synchronisation and launches that found the queue full."""
    stuck = _stuck(waits, made)
    position = np.concatenate((waits.position, made.position[stuck]))
    ns = np.concatenate((waits.end - waits.start, made.blocked[stuck]))
    phase = owned.host.phase[position]
    return sum_by(phase[phase != NONE].astype(np.int64), ns[phase != NONE], len(TRACE_PHASES))


def _stuck(waits: Waits, made: Launches) -> Ids:
    """Launches that the full queue held up, but for copies that wait in any case."""
    return np.flatnonzero((made.blocked > 0) & ~np.isin(made.position, waits.position)).astype(np.int32)


def _made_by(owned: Owned, position: Ids) -> Ids:
    """Names (of the table) of what made each call wait: the outermost operator below any autograd node, or else the Python call,
    or else the call itself: `aten::item` rather than the `aten::_local_scalar_dense` within.
    """
    table, host = owned.table, owned.host
    outer = host.operator[position].copy()
    for _ in range(_DEEPEST):
        parent = np.where(outer != NONE, host.parent[outer], NONE)
        above = np.where(parent != NONE, host.operator[parent], NONE)
        plain = np.zeros(len(above), np.bool_)
        inside = np.flatnonzero(above != NONE)
        if len(inside):
            names = [table.names[i] for i in table.name[host.rows[above[inside]]].tolist()]
            plain[inside] = [name.startswith("aten::") for name in names]
        if not plain.any():
            break
        outer[plain] = above[plain]
    by = np.where(outer != NONE, outer, host.python[position])
    return table.name[host.rows[np.where(by != NONE, by, position)]]
