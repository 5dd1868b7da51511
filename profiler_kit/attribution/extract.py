"""What one file contributes where several stand beside each other: little enough that hundreds are held at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import Gaps, device_time
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.summary import summarize
from profiler_kit.attribution.totals import messages
from profiler_kit.records.traces import IDLE_CAUSES, TRACE_PHASES, TraceSummary
from profiler_kit.traces.intervals import Intervals, charge, join, overlap, subtract, sum_by, union
from profiler_kit.traces.names import HOST_COLLECTIVE_RANGE
from profiler_kit.traces.table import GROUP_NAME, GROUP_RANKS, NONE, Ids, Ints, Kind, Mask

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


class Collective(NamedTuple):
    """What tells one collective from another: `group` is its process group, or what stands for it; `size` in bytes or NONE."""

    kind: str
    group: str
    size: int


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
    bare: Intervals
    backend: str = ""
    left_out: int = 0


class _Work(NamedTuple):
    """Work by start: whose it is (`phase` and `module` may be NONE, `operator` is a name's id), which are collectives."""

    row: Ids
    launch: Ids
    start: Ints
    end: Ints
    step: Ids
    phase: Ids
    module: Ids
    operator: Ids
    collective: Mask


def extract(attribution: Attribution) -> Extract:
    """What the file of `attribution` contributes beside others, its summary included."""
    on_device = bool(len(attribution.device.rows))
    time = device_time(attribution) if on_device else None
    work = _device_work(attribution) if on_device else _host_work(attribution)
    collectives = _collectives(attribution, work)
    computing = ~work.collective
    compute = union(work.start[computing], work.end[computing], ordered=True)
    communication = union(work.start[work.collective], work.end[work.collective], ordered=True)
    bare = subtract(communication, compute)
    if len(bare.start) > MOST_BARE:
        longest = np.sort(np.argsort(bare.start - bare.end, kind="stable")[:MOST_BARE])
        bare = Intervals(bare.start[longest], bare.end[longest])
    return Extract(
        summary=summarize(attribution, time),
        steps=_steps(attribution, work, compute, communication, time.gaps if time is not None else None),
        collectives=collectives,
        bare=bare,
        backend=attribution.table.info.backend,
        left_out=int(work.collective.sum()) - len(collectives.key),
    )


def _collectives(attribution: Attribution, work: _Work) -> Collectives:
    """The collectives of a trace, up to MOST_COLLECTIVES.

    Where the trace does not name a process group, the stream stands for it: each group has a stream of its own in NCCL.
    """
    table = attribution.table
    events = np.flatnonzero(work.collective)[:MOST_COLLECTIVES].astype(np.int32)
    rows = work.row[events]
    kinds, sizes = messages(attribution, rows, work.launch[events])
    ranks, names = table.texts_at(GROUP_RANKS, rows), table.texts_at(GROUP_NAME, rows)
    streams = table.stream[rows].tolist()
    numbers: dict[Collective, int] = {}
    key = np.empty(len(rows), np.int32)
    for i, (kind, group, name, size, stream) in enumerate(zip(kinds, ranks, names, sizes, streams, strict=True)):
        where = group or name or (f"stream {table.streams[stream].stream}" if stream != NONE else "host")
        key[i] = numbers.setdefault(Collective(kind, where, size), len(numbers))
    step = np.array([*(step.number for step in attribution.steps), NONE], np.int64)
    return Collectives(
        keys=tuple(numbers),
        key=key,
        step=step[work.step[events]],
        start_ns=work.start[events],
        end_ns=work.end[events],
    )


def _device_work(attribution: Attribution) -> _Work:
    device = attribution.device
    name = np.append(attribution.table.name[attribution.host.rows], np.int32(NONE))
    return _Work(
        row=device.rows,
        launch=device.launch,
        start=device.start_ns,
        end=device.end_ns,
        step=device.step,
        phase=device.phase.astype(np.int32),
        module=device.module,
        operator=name[device.operator],
        collective=device.collective,
    )


def _host_work(attribution: Attribution) -> _Work:
    """Operators that no other operator encloses, and the ranges in which the host's own collectives ran."""
    table, host = attribution.table, attribution.host
    kind = table.kind[host.rows]
    collective = (kind == Kind.ANNOTATION) & table.named(host.rows, HOST_COLLECTIVE_RANGE)
    around = np.append(host.operator, np.int32(NONE))[host.parent]
    position = np.flatnonzero(collective | ((kind == Kind.OPERATOR) & (around == NONE)))
    position = position[np.argsort(host.start_ns[position], kind="stable")]
    return _Work(
        row=host.rows[position],
        launch=np.full(len(position), NONE, np.int32),
        start=host.start_ns[position],
        end=host.end_ns[position],
        step=host.step[position],
        phase=host.phase[position].astype(np.int32),
        module=host.module[position],
        operator=table.name[host.rows[position]],
        collective=collective[position],
    )


def _steps(
    attribution: Attribution, work: _Work, compute: Intervals, communication: Intervals, gaps: Gaps | None
) -> Steps:
    """The steps by their first work; a trace without marks is one step."""
    marked = bool(attribution.steps) and bool((work.step != NONE).any())
    step = work.step if marked else np.zeros(len(work.start), np.int32)
    of = np.flatnonzero(step != NONE)
    index, first = np.unique(step[of], return_index=True)  # work is in order of its start
    start = work.start[of[first]]
    if marked and not len(attribution.device.rows):  # on the host's clock a step begins where it is marked
        start = np.array([attribution.steps[i].start_ns for i in index], np.int64)
    order = np.argsort(start, kind="stable")
    index, start = index[order], start[order]
    end = np.append(start[1:], 0)
    whole = np.ones(len(index), bool)
    if len(index):
        whole[-1] = not marked
        last = work.end[step == index[-1]]
        end[-1] = max(int(last.max()), int(start[-1]))
    activities, did = _did(attribution, work, step, index, gaps)
    computing, talking = overlap(compute, start, end), overlap(communication, start, end)
    busy = overlap(join(compute, communication), start, end)
    return Steps(
        number=np.array([attribution.steps[i].number if marked else NONE for i in index], np.int64),
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


def _did(
    attribution: Attribution, work: _Work, step: Ids, index: Ids, gaps: Gaps | None
) -> tuple[tuple[Activity, ...], Ints]:
    """How long each step was busy with what, or idle for what, every instant once; collectives are left out."""
    place = np.full(int(index.max(initial=0)) + 2, NONE, np.int64)  # one more, which NONE finds
    place[index] = np.arange(len(index))
    some = np.flatnonzero((step != NONE) & ~work.collective)
    at, spent, phase = (
        place[step[some]],
        charge(work.start[some], work.end[some]).piece,
        work.phase[some].astype(np.int64),
    )
    activities: list[Activity] = []
    columns: list[Ints] = []
    owners: tuple[tuple[Literal["phase", "module", "operator"], Ids, Callable[[int], str]], ...] = (
        ("phase", np.zeros(len(some), np.int32), lambda _: ""),
        ("module", work.module[some], lambda index: attribution.modules[index].path),
        ("operator", work.operator[some], lambda index: attribution.table.names[index]),
    )
    for kind, owner, name in owners:
        owned = np.flatnonzero((phase != NONE) & (owner != NONE))
        pairs, column = np.unique(phase[owned] << 32 | owner[owned], return_inverse=True)
        sums = sum_by(at[owned] * len(pairs) + column, spent[owned], len(index) * len(pairs))
        columns.append(sums.reshape(len(index), len(pairs)))
        activities += (Activity(kind, TRACE_PHASES[pair >> 32], name(pair & 0xFFFFFFFF)) for pair in pairs.tolist())
    if gaps is not None and len(gaps.ended_by):
        at = place[step[gaps.ended_by]]
        for cause, ns in zip(IDLE_CAUSES, gaps.ns, strict=True):
            columns.append(sum_by(at[at != NONE], ns[at != NONE], len(index))[:, None])
            activities.append(Activity("idle", "", cause))
    return tuple(activities), np.concatenate(columns, axis=1)
