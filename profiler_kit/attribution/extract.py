"""What one file contributes where several stand beside each other: little enough that hundreds are held at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np

from profiler_kit.attribution.collectives import Collective, collective_keys
from profiler_kit.attribution.communication import OTHER, kinds
from profiler_kit.attribution.idle import Gaps, gaps
from profiler_kit.attribution.named import named
from profiler_kit.attribution.ownership import PHASE_NUMBERS, Owned
from profiler_kit.attribution.spans import Spans, charge, join, overlap, subtract, sum_by, union
from profiler_kit.attribution.timeline import timeline
from profiler_kit.attribution.times import times
from profiler_kit.attribution.waits import waits
from profiler_kit.records.traces import IDLE_CAUSES, TRACE_PHASES, TraceSummary
from profiler_kit.traces.collectives import HOST_RANGE, collective_kind
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Mask

MOST_BARE: Final = 20_000  # stretches: 320 KB; beyond it those that matter least are let go
MOST_COLLECTIVES: Final = 200_000


class Activity(NamedTuple):
    """What a rank can be busy with, or idle for: a phase, a module or an operator in one, or a cause of idleness."""

    kind: Literal["phase", "module", "operator", "idle"]
    phase: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """A file's steps, on the clock that its work is on.

    `number` as marked; NONE where nothing is, and then the whole trace is one step. `start_ns` is a step's first work,
    `period_ns` from there to the next one's; of the last step to the end of its own work, and
    then `whole` is false. `compute_ns` is busy with anything but collectives, `exposed_ns` with collectives alone; with
    `idle_ns` they sum to the period. `did[step, activity]`: ns.
    """

    number: Ints
    start_ns: Ints
    period_ns: Ints
    whole: Mask
    compute_ns: Ints
    communication_ns: Ints
    exposed_ns: Ints
    idle_ns: Ints
    activities: tuple[Activity, ...]
    did: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Collectives:
    """A file's collectives by their start. `step`: its number, NONE for none; `key`: a position in `keys`."""

    keys: tuple[Collective, ...]
    key: Ids
    step: Ints
    start_ns: Ints
    end_ns: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Extract:
    """One file: its summary, its steps, its collectives, and `bare`, the stretches of these that no computation covers.

    `left_out`: collectives beyond what is kept.
    """

    summary: TraceSummary
    steps: Steps
    collectives: Collectives
    bare: Spans
    backend: str = ""
    left_out: int = 0


class _Work(NamedTuple):
    """Work by start: whose it is (`phase` and `module` may be NONE, `operator` is a name's id), which are collectives."""

    row: Ids
    start: Ints
    end: Ints
    step: Ids
    phase: Ids
    module: Ids
    operator: Ids
    collective: Mask


def extract(owned: Owned, summary: TraceSummary) -> Extract:
    """What the file of `owned` contributes beside others."""
    idle = gaps(owned, timeline(owned), waits(owned)) if len(owned.device.rows) else None
    work = _device_work(owned) if len(owned.device.rows) else _host_work(owned)
    communication = union(work.start[work.collective], work.end[work.collective], ordered=True)
    computing = ~work.collective
    compute = union(work.start[computing], work.end[computing], ordered=True)
    talking = np.flatnonzero(work.collective)[:MOST_COLLECTIVES].astype(np.int32)
    numbers = np.array([step.number for step in owned.steps] or [NONE], np.int64)
    rows = work.row[talking]
    keys, key = collective_keys(owned.table, rows, _kinds(owned, talking, rows))
    steps = work.step[talking]
    bare = subtract(communication, compute)
    if len(bare.start) > MOST_BARE:
        kept = np.sort(np.argsort(bare.start - bare.end, kind="stable")[:MOST_BARE])
        bare = Spans(bare.start[kept], bare.end[kept])
    return Extract(
        summary=summary,
        steps=_steps(owned, work, compute, communication, idle),
        collectives=Collectives(
            keys=keys,
            key=key,
            step=np.where(steps == NONE, NONE, numbers[steps]),
            start_ns=work.start[talking],
            end_ns=work.end[talking],
        ),
        bare=bare,
        backend=owned.table.info.backend,
        left_out=int(work.collective.sum()) - len(talking),
    )


def _kinds(owned: Owned, events: Ids, rows: Ids) -> list[str]:
    if len(owned.device.rows):
        return kinds(owned, events)
    return [collective_kind(owned.table.names[name]) or OTHER for name in owned.table.name[rows].tolist()]


def _device_work(owned: Owned) -> _Work:
    device, host, table = owned.device, owned.host, owned.table
    start, end = times(table, device.rows)
    operator = np.full(len(device.rows), NONE, np.int32)
    launched = device.operator != NONE
    operator[launched] = table.name[host.rows[device.operator[launched]]]
    return _Work(
        row=device.rows,
        start=start,
        end=end,
        step=device.step,
        phase=device.phase.astype(np.int32),
        module=device.module,
        operator=operator,
        collective=device.phase == PHASE_NUMBERS["communication"],
    )


def _host_work(owned: Owned) -> _Work:
    """Operators that no other operator encloses, and the ranges in which the host's own collectives ran."""
    table, host = owned.table, owned.host
    kind = table.kind[host.rows]
    around = np.where(host.parent == NONE, NONE, host.operator[host.parent])
    collective = (kind == Kind.ANNOTATION) & named(table.names, table.name[host.rows], HOST_RANGE)
    kept = collective | ((kind == Kind.OPERATOR) & (around == NONE))
    position = np.flatnonzero(kept)
    position = position[np.argsort(table.start_ns[host.rows[position]], kind="stable")]
    rows = host.rows[position]
    start, end = times(table, rows)
    return _Work(
        row=rows,
        start=start,
        end=end,
        step=_step_at(owned, start),
        phase=host.phase[position].astype(np.int32),
        module=host.module[position],
        operator=table.name[rows],
        collective=collective[position],
    )


def _step_at(owned: Owned, at: Ints) -> Ids:
    """The marked step at each instant, whatever the thread."""
    if not owned.steps:
        return np.full(len(at), NONE, np.int32)
    order = np.argsort([step.start_ns for step in owned.steps], kind="stable")
    starts = np.array([step.start_ns for step in owned.steps], np.int64)[order]
    ends = np.array([step.end_ns for step in owned.steps], np.int64)[order]
    index = np.searchsorted(starts, at, side="right") - 1
    inside = (index >= 0) & (at < ends[index])
    return np.where(inside, order[index], NONE).astype(np.int32)


def _steps(owned: Owned, work: _Work, compute: Spans, communication: Spans, idle: Gaps | None) -> Steps:
    """The steps by their first work; a trace without marks is one step."""
    marked = bool(owned.steps) and bool((work.step != NONE).any())
    step = work.step if marked else np.zeros(len(work.start), np.int32)
    of = np.flatnonzero(step != NONE)
    found, first = np.unique(step[of], return_index=True)  # work is in order of its start
    start = work.start[of[first]]
    if marked and not len(owned.device.rows):  # on the host's clock a step begins where it is marked
        start = np.array([owned.steps[index].start_ns for index in found], np.int64)
    order = np.argsort(start, kind="stable")
    found, start = found[order], start[order]
    end = np.append(start[1:], 0)
    whole = np.ones(len(found), bool)
    if len(found):
        whole[-1] = not marked
        last = work.end[step == found[-1]]
        end[-1] = max(int(last.max()), int(start[-1]))
    computing, talking = overlap(compute, start, end), overlap(communication, start, end)
    busy = overlap(join(compute, communication), start, end)
    activities, did = _did(owned, work, step, found, idle)
    return Steps(
        number=np.array([owned.steps[index].number if marked else NONE for index in found], np.int64),
        start_ns=start,
        period_ns=end - start,
        whole=whole,
        compute_ns=computing,
        communication_ns=talking,
        exposed_ns=busy - computing,
        idle_ns=end - start - busy,
        activities=activities,
        did=did,
    )


def _did(owned: Owned, work: _Work, step: Ids, found: Ids, idle: Gaps | None) -> tuple[tuple[Activity, ...], Ints]:
    """How long each step of `found` was busy with what, or idle for what, every instant once; collectives are left out."""
    place = np.full(int(found.max(initial=0)) + 2, NONE, np.int64)  # one more, which NONE finds
    place[found] = np.arange(len(found))
    kept = np.flatnonzero((step != NONE) & ~work.collective)
    at, spent, phase = (
        place[step[kept]],
        charge(work.start[kept], work.end[kept]).piece,
        work.phase[kept].astype(np.int64),
    )
    activities: list[Activity] = []
    columns: list[Ints] = []
    owners: tuple[tuple[Literal["phase", "module", "operator"], Ids, Callable[[int], str]], ...] = (
        ("phase", np.zeros(len(kept), np.int32), lambda _: ""),
        ("module", work.module[kept], lambda index: owned.modules[index].path),
        ("operator", work.operator[kept], lambda index: owned.table.names[index]),
    )
    for kind, owner, name in owners:
        known = np.flatnonzero((phase != NONE) & (owner != NONE))
        pairs, column = np.unique(phase[known] << 32 | owner[known], return_inverse=True)
        sums = sum_by(at[known] * len(pairs) + column, spent[known], len(found) * len(pairs))
        columns.append(sums.reshape(len(found), len(pairs)))
        activities += (Activity(kind, TRACE_PHASES[pair >> 32], name(pair & 0xFFFFFFFF)) for pair in pairs.tolist())
    if idle is not None and len(idle.ended_by):
        at = place[step[idle.ended_by]]
        for cause, ns in zip(IDLE_CAUSES, idle.ns, strict=True):
            columns.append(sum_by(at[at != NONE], ns[at != NONE], len(found))[:, None])
            activities.append(Activity("idle", "", cause))
    return tuple(activities), np.concatenate(columns, axis=1)
