"""Comparison of the ranks of one job: the time of each rank in the common steps, and which ranks waited for which."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.rank_collectives import step_collectives
from profiler_kit.attribution.rank_extract import MAX_COLLECTIVES, Activity, RankExtract
from profiler_kit.attribution.rank_waits import (
    CollectiveAlignment,
    RankWaits,
    align_collectives,
    clock_offsets,
    rank_waits,
)
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.ranks import Ranks, RankTime, Straggler
from profiler_kit.records.traces import TraceSummary
from profiler_kit.traces.table import Ints

# Of a step. A rank that costs the others less is not named.
MIN_COST_SHARE: Final = 0.01
MIN_EXCESS_SHARE: Final = 0.5  # of a phase's excess time: a module or operator with this share is named
MAX_STRAGGLERS: Final = 8
MAX_LISTED: Final = 8  # ranks or files that a note lists
_RANK_IN_NAME: Final = (
    re.compile(r"rank[-_. ]?(\d+)", re.IGNORECASE),  # rank3, rank-0of128, rank_12
    re.compile(r"worker[-_. ]?(\d+)", re.IGNORECASE),
    re.compile(r"[-_.](\d+)(?=\.|\Z)"),  # trace_3.json.gz
)


def compare_ranks(extracts: Sequence[RankExtract]) -> Ranks:
    """Return the comparison of the files' ranks.

    If they are not ranks of one job, `ranks` is empty and `notes` has the reason.
    """
    rank_files = _assign_ranks(extracts)
    if not rank_files.files:
        return _no_ranks(rank_files.notes)
    files, numbers, notes = _files_with_common_steps(rank_files)
    if not numbers:
        return _no_ranks((*notes, "The traces have no step in common, so their ranks are not compared."))
    rank_extracts = [file for _, file in files]
    times = _StepMeans(rank_extracts, numbers)
    alignment = align_collectives(rank_extracts, numbers)
    waits = rank_waits(rank_extracts, alignment.blocks)
    count = len(numbers)
    rows = tuple(
        RankTime(
            rank=rank,
            file=file.summary.file,
            steps=count,
            step_ns=int(times.period[i]),
            compute_ns=int(times.compute[i]),
            communication_ns=int(times.communication[i]),
            exposed_ns=int(times.exposed[i]),
            wait_ns=int(waits.wait_ns[i]) // count,
            idle_ns=int(times.idle[i]),
        )
        for i, (rank, file) in enumerate(files)
    )
    mean = float(times.compute.mean())
    return Ranks(
        ranks=rows,
        common_steps=count if numbers[0] >= 0 else 0,
        step_ns=int(np.median(times.period)),
        imbalance=float(times.compute.max()) / mean - 1.0 if mean > 0 else 0.0,
        stragglers=_stragglers(times, [rank for rank, _ in files], waits, count),
        notes=(*notes, *_alignment_notes(alignment, rank_extracts)),
        # collectives that were matched by their ends are only a part of the step's
        collectives=() if alignment.matched_by_end else step_collectives(rank_extracts, alignment.blocks, numbers),
    )


class _StepMeans:
    """Means over the steps `numbers`, by extract, in whole ns."""

    def __init__(self, files: Sequence[RankExtract], numbers: Sequence[int]) -> None:
        self.files = files
        self._at = [np.flatnonzero(np.isin(file.steps.number, np.array(numbers, np.int64))) for file in files]
        self.period = self._mean("period_ns")
        self.compute = self._mean("compute_ns")
        self.communication = self._mean("communication_ns")
        self.exposed = self._mean("exposed_ns")
        self.idle = self.period - self.compute - self.exposed

    def activities(self) -> tuple[tuple[Activity, ...], Ints]:
        """Return all activities of the extracts, and their times with a row per extract."""
        column_of: dict[Activity, int] = {}
        for file in self.files:
            for activity in file.steps.activities:
                column_of.setdefault(activity, len(column_of))
        table = np.zeros((len(self.files), len(column_of)), np.int64)
        for row, (file, at) in enumerate(zip(self.files, self._at, strict=True)):
            columns = np.array([column_of[activity] for activity in file.steps.activities], np.int64)
            table[row, columns] = file.steps.activity_ns[at].sum(axis=0) // max(len(at), 1)
        return tuple(column_of), table

    def _mean(self, name: str) -> Ints:
        columns = [getattr(file.steps, name)[at] for file, at in zip(self.files, self._at, strict=True)]
        return np.array([int(column.sum()) // max(len(column), 1) for column in columns], np.int64)


def timelines_on_one_clock(extracts: Sequence[RankExtract]) -> list[StepTimeline | None]:
    """Return the timelines of `extracts`, with clocks where collectives, which end on all ranks at once, show how they differ."""
    steps = sorted(set.intersection(*(set(extract.steps.number.tolist()) for extract in extracts)))
    blocks = align_collectives(extracts, steps).blocks
    clocks = clock_offsets(blocks, extracts)
    shown = {extract.timeline.step for extract in extracts if extract.timeline is not None}
    starts = [
        block.times(extracts)[0] for block in blocks if len(block.members) == len(extracts) and {block.step} == shown
    ]
    return [
        replace(
            extract.timeline, clock_ns=clocks.get(i), collectives=tuple(int(t) for block in starts for t in block[:, i])
        )
        if extract.timeline is not None
        else None
        for i, extract in enumerate(extracts)
    ]


def _no_ranks(notes: tuple[str, ...]) -> Ranks:
    return Ranks(ranks=(), common_steps=0, step_ns=None, imbalance=0.0, notes=notes)


def _files_with_common_steps(
    rank_files: _RankFiles,
) -> tuple[list[tuple[int, RankExtract]], list[int], tuple[str, ...]]:
    """Return the files that share steps, these steps, and notes on the other files.

    A rank that shares no steps with most others is excluded, as nothing would be in common. The last step of a trace
    is incomplete. It counts only if the files have no other step.
    """
    notes = list(rank_files.notes)
    for complete_only in (True, False):
        sets = [
            frozenset(file.steps.number[file.steps.complete | (not complete_only)].tolist())
            for _, file in rank_files.files
        ]
        frequent = Counter(number for steps in sets for number in steps)
        highest = max(frequent.values(), default=0)
        if highest < 2:
            continue
        shared = min(number for number, count in frequent.items() if count == highest)
        indices = [i for i, steps in enumerate(sets) if shared in steps]
        common = sorted(frozenset.intersection(*(sets[i] for i in indices)))
        excluded = [rank_files.files[i][0] for i in range(len(sets)) if i not in set(indices)]
        if excluded:
            notes.append(f"{_ranks_text(excluded)} not compared: no trace of steps {_numbers_text(common)}.")
        with_more = [rank_files.files[i][0] for i in indices if sets[i] != frozenset(common)]
        if with_more:
            notes.append(f"Compared over the common steps {_numbers_text(common)}. {_more_steps_text(with_more)}.")
        return [rank_files.files[i] for i in indices], common, tuple(notes)
    return [], [], tuple(notes)


def _ranks_text(ranks: Sequence[int]) -> str:
    return f"Rank {ranks[0]} is" if len(ranks) == 1 else f"Ranks {_numbers_text(sorted(ranks))} are"


def _more_steps_text(ranks: Sequence[int]) -> str:
    return (
        f"Rank {ranks[0]} has more steps"
        if len(ranks) == 1
        else f"Ranks {_numbers_text(sorted(ranks))} have more steps"
    )


def _alignment_notes(alignment: CollectiveAlignment, files: Sequence[RankExtract]) -> list[str]:
    notes = []
    if not any(len(file.collectives.key) for file in files):
        return ["The traces hold no collectives, so waits between ranks are unknown."]
    if alignment.matched_by_end:
        matched = sum(len(block.events) for block in alignment.blocks)
        notes.append(
            f"The traces hold different collectives: {matched} were matched by their ends."
            if matched
            else "The traces hold different collectives, and none end together, so waits are unknown."
        )
    if alignment.end_mismatches:
        notes.append(
            f"{_collectives_text(alignment.end_mismatches)} ended at different times on different ranks. "
            "Their waits are not counted."
        )
    if alignment.unmatched:
        notes.append(f"{_collectives_text(alignment.unmatched)} occur in the trace of one rank only.")
    skipped = sum(file.skipped for file in files)
    if skipped:
        notes.append(f"{_collectives_text(skipped)} beyond the limit of {MAX_COLLECTIVES:,} per file were skipped.")
    return notes


def _collectives_text(count: int) -> str:
    return f"{count:,} collective{'' if count == 1 else 's'}"


def _stragglers(times: _StepMeans, ranks: Sequence[int], waits: RankWaits, steps: int) -> tuple[Straggler, ...]:
    """Return the ranks that other ranks wait for, the latest first."""
    exposed = waits.exposed_ns // steps
    cost = np.array([int(_median_of_others(exposed, i)) - int(exposed[i]) for i in range(len(ranks))])
    late = np.maximum(waits.late_ns // steps, cost)  # a rank may be late at several places of a step
    min_cost_ns = MIN_COST_SHARE * float(np.median(times.period))
    order = [int(i) for i in np.argsort(-late, kind="stable") if cost[i] >= min_cost_ns and waits.last[i]][
        :MAX_STRAGGLERS
    ]
    if not order:
        return ()
    activities, activity_ns = times.activities()
    stragglers = []
    for i in order:
        excess_activity, excess_ns = _largest_excess(
            activities, activity_ns[i] - np.array(_median_of_others(activity_ns, i), np.int64)
        )
        stragglers.append(
            Straggler(
                rank=ranks[i],
                last=int(waits.last[i]),
                collectives=int(waits.collectives[i]),
                late_ns=int(late[i]),
                cost_ns=int(cost[i]),
                doing=excess_activity,
                doing_excess_ns=excess_ns,
                idle_excess_ns=int(times.idle[i]) - int(_median_of_others(times.idle, i)),
            )
        )
    return tuple(stragglers)


def _largest_excess(activities: Sequence[Activity], excess: Ints) -> tuple[str, int]:
    """Return the phase or idle cause with the greatest excess time, with the module or operator that has most of it."""
    candidates = [i for i, candidate in enumerate(activities) if candidate.kind in ("phase", "idle")]
    largest = max(candidates, key=lambda i: int(excess[i]), default=None)
    if largest is None or excess[largest] <= 0:
        return "", 0
    activity = activities[largest]
    if activity.kind == "idle":
        return f"{activity.name} (idle)", int(excess[largest])
    for kind in ("module", "operator"):
        in_phase = [i for i, part in enumerate(activities) if part.kind == kind and part.phase == activity.phase]
        largest_part = max(in_phase, key=lambda i: int(excess[i]), default=None)
        if (
            largest_part is not None
            and activities[largest_part].name
            and excess[largest_part] >= MIN_EXCESS_SHARE * excess[largest]
        ):
            return f"{activity.phase} ({activities[largest_part].name})", int(excess[largest_part])
    return activity.phase, int(excess[largest])


# ---- the rank of each file, and whether the files are ranks of one job


class _RankFiles(NamedTuple):
    """Files by rank, ascending, each rank once; empty if they are not ranks of one job.

    `notes` name the excluded files.
    """

    files: tuple[tuple[int, RankExtract], ...]
    notes: tuple[str, ...]


def _assign_ranks(extracts: Sequence[RankExtract]) -> _RankFiles:
    """Return the rank of each file: stated in the trace, else found in the file name, else the place among the files."""
    if len(extracts) < 2:
        return _RankFiles((), ())
    summaries = [file.summary for file in extracts]
    stated_ranks = [file.rank for file in summaries]
    if not _look_like_ranks(extracts):
        return _RankFiles((), ())
    world_sizes = {file.world_size for file in summaries if file.world_size is not None}
    if len(world_sizes) > 1:
        sizes = ", ".join(f"{size} ranks in {_first_file_of(summaries, size)}" for size in sorted(world_sizes))
        return _RankFiles((), (f"The traces are not of one job: {sizes}.",))
    backends = {file.backend for file in extracts if file.backend}
    if len(backends) > 1:
        return _RankFiles((), (f"The traces are not of one job: their backends are {' and '.join(sorted(backends))}.",))
    notes = []
    from_names = _ranks_from_names([Path(file.file).name for file in summaries])
    ranks = [
        rank if rank is not None else from_names[i] if from_names is not None else i
        for i, rank in enumerate(stated_ranks)
    ]
    if None in stated_ranks:
        unstated = stated_ranks.count(None)
        source = "their names" if from_names is not None else "their order"
        notes.append(f"{unstated} of {len(stated_ranks)} traces do not state their rank. It was taken from {source}.")
    by_rank: dict[int, list[RankExtract]] = {}
    for rank, file in zip(ranks, extracts, strict=True):
        by_rank.setdefault(rank, []).append(file)
    steps = _usual_steps(extracts)
    files = []
    for rank, duplicates in sorted(by_rank.items()):
        selected = max(duplicates, key=lambda file: len(steps & set(file.steps.number.tolist())))
        files.append((rank, selected))
        if len(duplicates) > 1:
            excluded = ", ".join(Path(file.summary.file).name for file in duplicates if file is not selected)
            notes.append(f"Rank {rank} has {len(duplicates)} files: {excluded} ignored.")
    if len(files) < 2:
        return _RankFiles((), tuple(notes))
    notes += _missing_ranks(world_sizes, [rank for rank, _ in files])
    return _RankFiles(tuple(files), tuple(notes))


def _median_of_others(values: Ints, index: int) -> Ints:
    """Return the median of all rows of `values` but the one at `index`, in whole numbers."""
    return np.asarray(np.median(np.delete(values, index, axis=0), axis=0)).astype(np.int64)


def _numbers_text(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text: ``2 to 4``, ``0, 3``; only the first ones of a long list."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    listed = ", ".join(map(str, numbers[:MAX_LISTED]))
    return listed if len(numbers) <= MAX_LISTED else f"{listed} and {len(numbers) - MAX_LISTED} more"


def _look_like_ranks(extracts: Sequence[RankExtract]) -> bool:
    """Return whether at least two files state a distributed job, have a rank in their name, or hold collectives."""
    distributed = sum(
        (file.summary.world_size or 0) > 1 or (file.summary.rank is not None and file.summary.world_size is None)
        for file in extracts
    )
    named = sum("rank" in Path(file.summary.file).name.lower() for file in extracts)
    communicating = sum(len(file.collectives.key) > 0 for file in extracts)
    return max(distributed, named, communicating) >= 2


def _ranks_from_names(names: Sequence[str]) -> list[int] | None:
    """Return the ranks in the file names, by the first pattern that all names match with different numbers; else None."""
    for pattern in _RANK_IN_NAME:
        matches = [match for name in names if (match := pattern.search(name)) is not None]
        numbers = [int(match[1]) for match in matches if len(match[1]) < 7]
        if len(numbers) == len(names) and len(set(numbers)) > 1:
            return numbers
    return None


def _usual_steps(extracts: Sequence[RankExtract]) -> set[int]:
    """Return the steps that most files have."""
    counts: dict[int, int] = {}
    for file in extracts:
        for number in file.steps.number.tolist():
            counts[number] = counts.get(number, 0) + 1
    highest = max(counts.values(), default=0)
    return {number for number, count in counts.items() if count == highest}


def _missing_ranks(world_sizes: set[int], ranks: Sequence[int]) -> list[str]:
    world_size = max(world_sizes, default=None)
    if world_size is None:
        return []
    if ranks[-1] >= world_size:
        return [
            f"One trace is of rank {ranks[-1]}, but the job has {world_size} ranks. The traces may not be of one job."
        ]
    missing = sorted(set(range(world_size)) - set(ranks))
    if not missing:
        return []
    present = f"{len(ranks)} of the job's {world_size} ranks have a trace (missing: {_numbers_text(missing)})"
    return [f"{present}. Waits for a missing rank are not visible."]


def _first_file_of(summaries: Sequence[TraceSummary], world_size: int) -> str:
    return next(Path(file.file).name for file in summaries if file.world_size == world_size)
