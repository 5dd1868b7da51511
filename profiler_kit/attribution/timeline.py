"""The two clocks of a trace: the device's timeline, and the host's wall time by phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.result import Attribution, Device
from profiler_kit.traces.intervals import Intervals, charge, empty, join, length, overlap, subtract, union
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Every instant between the first and the last event of `device` is busy, for one event, or idle, before one.

    An instant that several events cover is the first-started one's. A collective spins on its own stream until all ranks have
    come, beside the work that it waits behind: it has only the instants that nothing else covers.

    `piece`: the ns of each event that are its own. `gap`: the idle ns that each one ended, from `covered` to its start;
    `before` is the position of the event whose end began the gap. Devices share one timeline where a trace holds several.
    `first`: the last ns of each event in which it is the first-started one of its sort, collectives or all else; `covering`:
    when anything but collectives runs, empty in a trace without collectives.
    """

    device: Device
    piece: Ints
    gap: Ints
    covered: Ints
    before: Ints
    first: Ints
    covering: Intervals

    @property
    def span_ns(self) -> int:
        """From the first event's start to the last one's end."""
        return int(self.device.end_ns.max() - self.device.start_ns[0]) if len(self.piece) else 0

    @property
    def busy_ns(self) -> int:
        """The instants with work, each once."""
        return int(self.piece.sum())

    def charged(self, mask: Mask) -> Intervals:
        """The intervals that belong to the events of `mask`."""
        shared = mask & self.device.collective
        if not shared.any():
            return self._first(mask)
        return join(subtract(self._first(shared), self.covering), self._first(mask & ~self.device.collective))

    def _first(self, mask: Mask) -> Intervals:
        some = mask & (self.first > 0)
        end = self.device.end_ns[some]
        return union(end - self.first[some], end, ordered=True)


def device_timeline(device: Device) -> Timeline:
    """The timeline of the device's work."""
    start, end = device.start_ns, device.end_ns
    charges = charge(start, end)
    collective = device.collective
    piece = first = charges.piece
    covering = empty()
    if collective.any():
        first = np.empty_like(piece)
        for sort in (collective, ~collective):
            first[sort] = charge(start[sort], end[sort]).piece
        covering = union(start[~collective], end[~collective], ordered=True)
        piece = first.copy()
        piece[collective] -= overlap(covering, (end - first)[collective], end[collective])
    return Timeline(
        device=device,
        piece=piece,
        gap=charges.gap,
        covered=charges.covered,
        before=charges.before,
        first=first,
        covering=covering,
    )


# ---- the host's clock


class Stretches(NamedTuple):
    """Stretches of one thread in order, each with its owner; those of nobody are left out."""

    start: Ints
    end: Ints
    owner: Ids


def innermost(start: Ints, end: Ints, inside: Ids, after: Ids) -> Stretches:
    """Nested intervals of one thread, the enclosing ones first, as stretches.

    `inside` owns what follows an interval's start, `after` what follows its end.
    """
    full = np.flatnonzero(end > start)
    start, end, inside, after = start[full], end[full], inside[full], after[full]
    # at one instant: what ends, the inner first, and only then what starts, the outer first
    last = len(end) - 1 - np.argsort(end[::-1], kind="stable")
    at = np.concatenate((end[last], start))
    owner = np.concatenate((after[last], inside))
    order = np.argsort(at, kind="stable")
    at, owner = at[order], owner[order]
    owned = np.flatnonzero((owner[:-1] != NONE) & (at[1:] > at[:-1]))
    return Stretches(at[owned], at[owned + 1], owner[owned])


def phase_host_ns(attribution: Attribution) -> dict[int, int]:
    """The wall time of each phase (an index of TRACE_PHASES) on the host: what a stopwatch around it would show.

    On the main thread, and on those that run autograd's nodes, an instant belongs to the innermost event with a phase. What lies
    between two stretches of one phase in one step, with no other phase between them on any of these threads, is Python between
    the calls of that phase and belongs to it too. Where threads are in one phase at the same time, the instant counts once.
    """
    host = attribution.host
    outer = np.where(host.parent != NONE, host.phase[host.parent], NONE)
    runtime = attribution.table.kind[host.rows] == Kind.RUNTIME
    changes = np.flatnonzero((host.phase != outer) & (host.phase != NONE) & ~runtime)
    autograd = np.flatnonzero(np.bincount(host.thread[host.node != NONE])).tolist()
    parts: list[Stretches] = []
    for thread in dict.fromkeys((attribution.main_thread, *autograd)):
        at = changes[host.thread[changes] == thread]
        phase, around = host.phase[at].astype(np.int32), outer[at].astype(np.int32)
        parts.append(innermost(host.start_ns[at], host.end_ns[at], phase, around))
    marks = np.sort(np.array([step.start_ns for step in attribution.steps], np.int64))
    start, end, owner = _joined(parts, marks)
    return {phase: length(union(start[owner == phase], end[owner == phase])) for phase in np.unique(owner).tolist()}


def _joined(parts: list[Stretches], marks: Ints) -> Stretches:
    """Successive stretches of one owner between two of `marks`, whichever thread's, as one."""
    start, end, owner = (np.concatenate([part[i] for part in parts]) for i in range(3))
    order = np.argsort(start, kind="stable")
    start, end, owner = start[order], end[order], owner[order]
    if not len(start):
        return Stretches(start, end, owner)
    step = np.searchsorted(marks, start, side="right")
    first = np.flatnonzero(np.concatenate(([True], (owner[1:] != owner[:-1]) | (step[1:] != step[:-1]))))
    return Stretches(start[first], np.maximum.reduceat(end, first), owner[first])
