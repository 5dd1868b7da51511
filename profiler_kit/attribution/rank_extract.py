"""The part of one file's attribution that a comparison of ranks needs.

It is small enough to hold hundreds of files in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import Gaps, device_time
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.summary import summarize
from profiler_kit.attribution.totals import messages
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.traces import IDLE_CAUSES, TraceSummary
from profiler_kit.traces.intervals import Intervals, assign_to_first, join, overlap, subtract, sum_by, union
from profiler_kit.traces.names import HOST_COLLECTIVE_RANGE
from profiler_kit.traces.table import GROUP_NAME, GROUP_RANKS, NONE, Ids, Ints, Kind, Mask

MAX_EXPOSED_INTERVALS: Final = 20_000  # intervals: 320 KB; beyond it the shortest are dropped
MAX_COLLECTIVES: Final = 200_000


class Activity(NamedTuple):
    """An activity of a rank: a phase, a module or an operator in a phase, or a cause of idle time."""

    kind: Literal["phase", "module", "operator", "idle"]
    phase: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """The steps of one file, on the clock of its work.

    `number`: as marked, or NONE in a trace without marks, which is one step. `start_ns`: the start of the step's
    first work. `period_ns`: from there to the start of the next step. The last step ends with its own work and is not
    `complete`. `compute_ns`: busy with any work but collectives. `exposed_ns`: busy with collectives alone. The two
    and `idle_ns` sum to the period. `activity_ns[step, activity]`: ns of each activity.
    """

    number: Ints
    start_ns: Ints
    period_ns: Ints
    complete: Mask
    compute_ns: Ints
    communication_ns: Ints
    exposed_ns: Ints
    idle_ns: Ints
    activities: tuple[Activity, ...]
    activity_ns: Ints


class Collective(NamedTuple):
    """The key that tells collectives apart.

    `group`: the process group, or the stream in its place. `size`: bytes or NONE.
    """

    kind: str
    group: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Collectives:
    """The collectives of one file by start. `step`: the step's number or NONE. `key`: an index of `keys`."""

    keys: tuple[Collective, ...]
    key: Ids
    step: Ints
    start_ns: Ints
    end_ns: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankExtract:
    """One file: its summary, steps and collectives.

    `exposed`: intervals of communication that no computation covers.

    `skipped`: the number of collectives beyond MAX_COLLECTIVES. `timeline`: a step over time, where requested.
    """

    summary: TraceSummary
    steps: Steps
    collectives: Collectives
    exposed: Intervals
    backend: str = ""
    skipped: int = 0
    timeline: StepTimeline | None = None


class _Work(NamedTuple):
    """Work by start.

    `phase` and `module` may be NONE, `operator` is the index of a name, `collective` marks collectives.
    """

    row: Ids
    launch: Ids
    start: Ints
    end: Ints
    step: Ids
    phase: Ids
    module: Ids
    operator: Ids
    collective: Mask


def extract_rank(attribution: Attribution) -> RankExtract:
    """Return the part of `attribution` that comparisons need, with its summary."""
    on_device = bool(len(attribution.device.rows))
    time = device_time(attribution) if on_device else None
    work = _device_work(attribution) if on_device else _host_work(attribution)
    collectives = _collectives(attribution, work)
    computing = ~work.collective
    compute = union(work.start[computing], work.end[computing], ordered=True)
    communication = union(work.start[work.collective], work.end[work.collective], ordered=True)
    exposed = subtract(communication, compute)
    if len(exposed.start) > MAX_EXPOSED_INTERVALS:
        longest = np.sort(np.argsort(exposed.start - exposed.end, kind="stable")[:MAX_EXPOSED_INTERVALS])
        exposed = Intervals(exposed.start[longest], exposed.end[longest])
    return RankExtract(
        summary=summarize(attribution, time),
        steps=_steps(attribution, work, compute, communication, time.gaps if time is not None else None),
        collectives=collectives,
        exposed=exposed,
        backend=attribution.table.info.backend,
        skipped=int(work.collective.sum()) - len(collectives.key),
    )


def _collectives(attribution: Attribution, work: _Work) -> Collectives:
    """Return the collectives of a trace, up to MAX_COLLECTIVES.

    If the trace does not name a process group, the stream identifies it: in NCCL each group has its own stream.
    """
    table = attribution.table
    events = np.flatnonzero(work.collective)[:MAX_COLLECTIVES].astype(np.int32)
    rows = work.row[events]
    kinds, sizes = messages(attribution, rows, work.launch[events])
    ranks, names = table.texts_at(GROUP_RANKS, rows), table.texts_at(GROUP_NAME, rows)
    streams = table.stream[rows].tolist()
    numbers: dict[Collective, int] = {}
    key = np.empty(len(rows), np.int32)
    for i, (kind, group, name, size, stream) in enumerate(zip(kinds, ranks, names, sizes, streams, strict=True)):
        group_name = group or name or (f"stream {table.streams[stream].stream}" if stream != NONE else "host")
        key[i] = numbers.setdefault(Collective(kind, group_name, size), len(numbers))
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
    """Return the outermost operators, and the ranges in which collectives ran on the host."""
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
    """Return the steps by their first work. A trace without marks is one step."""
    marked = bool(attribution.steps) and bool((work.step != NONE).any())
    step = work.step if marked else np.zeros(len(work.start), np.int32)
    in_step = np.flatnonzero(step != NONE)
    index, first = np.unique(step[in_step], return_index=True)  # work is ordered by start
    start = work.start[in_step[first]]
    if marked and not len(attribution.device.rows):  # on the host's clock, a step begins with its mark
        start = np.array([attribution.steps[i].start_ns for i in index], np.int64)
    order = np.argsort(start, kind="stable")
    index, start = index[order], start[order]
    end = np.append(start[1:], 0)
    complete = np.ones(len(index), bool)
    if len(index):
        complete[-1] = not marked
        if marked:  # a step before a pause of the recording lasts until the next recorded step
            numbers = np.array([attribution.steps[i].number for i in index], np.int64)
            complete[:-1] &= np.diff(numbers) == 1
        last_ends = work.end[step == index[-1]]
        end[-1] = max(int(last_ends.max()), int(start[-1]))
    activities, activity_ns = _activity_times(attribution, work, step, index, gaps)
    computing, communicating = overlap(compute, start, end), overlap(communication, start, end)
    busy = overlap(join(compute, communication), start, end)
    return Steps(
        number=np.array([attribution.steps[i].number if marked else NONE for i in index], np.int64),
        start_ns=start,
        period_ns=end - start,
        complete=complete,
        compute_ns=computing,
        communication_ns=communicating,
        exposed_ns=busy - computing,
        idle_ns=end - start - busy,
        activities=activities,
        activity_ns=activity_ns,
    )


def _activity_times(
    attribution: Attribution, work: _Work, step: Ids, index: Ids, gaps: Gaps | None
) -> tuple[tuple[Activity, ...], Ints]:
    """Return the time of each activity in each step, with each instant counted once. Collectives are excluded."""
    step_row = np.full(int(index.max(initial=0)) + 2, NONE, np.int64)  # index NONE (-1) selects the last entry
    step_row[index] = np.arange(len(index))
    computing = np.flatnonzero((step != NONE) & ~work.collective)
    row, spent, phase = (
        step_row[step[computing]],
        assign_to_first(work.start[computing], work.end[computing]).piece,
        work.phase[computing].astype(np.int64),
    )
    activities: list[Activity] = []
    columns: list[Ints] = []
    levels: tuple[tuple[Literal["phase", "module", "operator"], Ids, Callable[[int], str]], ...] = (
        ("phase", np.zeros(len(computing), np.int32), lambda _: ""),
        ("module", work.module[computing], lambda index: attribution.modules[index].path),
        ("operator", work.operator[computing], lambda index: attribution.table.names[index]),
    )
    for kind, index_of, name in levels:
        attributed = np.flatnonzero((phase != NONE) & (index_of != NONE))
        pairs, column = np.unique(phase[attributed] << 32 | index_of[attributed], return_inverse=True)
        sums = sum_by(row[attributed] * len(pairs) + column, spent[attributed], len(index) * len(pairs))
        columns.append(sums.reshape(len(index), len(pairs)))
        activities += (Activity(kind, TRACE_PHASES[pair >> 32], name(pair & 0xFFFFFFFF)) for pair in pairs.tolist())
    if gaps is not None and len(gaps.ended_by):
        row = step_row[step[gaps.ended_by]]
        for cause, ns in zip(IDLE_CAUSES, gaps.ns, strict=True):
            columns.append(sum_by(row[row != NONE], ns[row != NONE], len(index))[:, None])
            activities.append(Activity("idle", "", cause))
    return tuple(activities), np.concatenate(columns, axis=1)
