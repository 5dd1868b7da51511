"""The ranks of one job beside each other: what each did in the steps that all have, and who waited for whom."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.extract import Activity, Extract
from profiler_kit.attribution.rank_waits import Alignment, RankWaits, align, rank_waits
from profiler_kit.records.ranks import Ranks, RankTime, Straggler
from profiler_kit.records.traces import TraceSummary
from profiler_kit.traces.table import Ints

# Of a step: a rank that the others stand waiting for less than this costs nothing worth a name.
COST_SHARE: Final = 0.01
NAMED_SHARE: Final = 0.5  # of a phase's excess: a module or an operator with as much is what the rank was at
MOST_STRAGGLERS: Final = 8
LISTED: Final = 8  # ranks or files that a note names one by one
_NAMES: Final = (
    re.compile(r"rank[-_. ]?(\d+)", re.IGNORECASE),  # rank3, rank-0of128, rank_12
    re.compile(r"worker[-_. ]?(\d+)", re.IGNORECASE),
    re.compile(r"[-_.](\d+)(?=\.|\Z)"),  # trace_3.json.gz
)


def ranks_of(extracts: Sequence[Extract]) -> Ranks:
    """The files' ranks beside each other; with no `ranks`, and the reason in `notes`, where they are not ranks of one job."""
    numbered = _number_files(extracts)
    if not numbered.files:
        return _nothing(numbered.notes)
    files, numbers, notes = _sharing(numbered)
    if not numbers:
        return _nothing((*notes, "The traces have no step in common, so their ranks are not held against each other."))
    ours = [file for _, file in files]
    times = _Times(ours, numbers)
    alignment = align(ours, numbers)
    waited = rank_waits(ours, alignment.blocks)
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
            wait_ns=int(waited.wait_ns[i]) // count,
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
        stragglers=_stragglers(times, [rank for rank, _ in files], waited, count),
        notes=(*notes, *_alignment_notes(alignment, ours)),
    )


class _Times:
    """Means over the steps `numbers`, by extract; ns, whole."""

    def __init__(self, files: Sequence[Extract], numbers: Sequence[int]) -> None:
        self.files = files
        self._at = [np.flatnonzero(np.isin(file.steps.number, np.array(numbers, np.int64))) for file in files]
        self.period = self._mean("period_ns")
        self.compute = self._mean("compute_ns")
        self.communication = self._mean("communication_ns")
        self.exposed = self._mean("exposed_ns")
        self.idle = self.period - self.compute - self.exposed

    def did(self) -> tuple[tuple[Activity, ...], Ints]:
        """What each extract did, by activity (all of them, in a row per extract)."""
        place: dict[Activity, int] = {}
        for file in self.files:
            for activity in file.steps.activities:
                place.setdefault(activity, len(place))
        table = np.zeros((len(self.files), len(place)), np.int64)
        for row, (file, at) in enumerate(zip(self.files, self._at, strict=True)):
            columns = np.array([place[activity] for activity in file.steps.activities], np.int64)
            table[row, columns] = file.steps.did[at].sum(axis=0) // max(len(at), 1)
        return tuple(place), table

    def _mean(self, name: str) -> Ints:
        columns = [getattr(file.steps, name)[at] for file, at in zip(self.files, self._at, strict=True)]
        return np.array([int(column.sum()) // max(len(column), 1) for column in columns], np.int64)


def _nothing(notes: tuple[str, ...]) -> Ranks:
    return Ranks(ranks=(), common_steps=0, step_ns=None, imbalance=0.0, notes=notes)


def _sharing(numbered: _Numbered) -> tuple[list[tuple[int, Extract]], list[int], tuple[str, ...]]:
    """The files that share steps, these steps, and what to say of the others.

    A rank whose steps are none of most others' would leave nothing in common: it is left out. The last step of a trace, which no
    next one ends, counts only where the files have no other.
    """
    notes = list(numbered.notes)
    for whole_only in (True, False):
        sets = [
            frozenset(file.steps.number[file.steps.whole | (not whole_only)].tolist()) for _, file in numbered.files
        ]
        frequent = Counter(number for steps in sets for number in steps)
        most = max(frequent.values(), default=0)
        if most < 2:
            continue
        shared = min(number for number, count in frequent.items() if count == most)
        sharing = [i for i, steps in enumerate(sets) if shared in steps]
        common = sorted(frozenset.intersection(*(sets[i] for i in sharing)))
        left = [numbered.files[i][0] for i in range(len(sets)) if i not in set(sharing)]
        if left:
            notes.append(
                f"{_ranks_words(left)} not held against the others: no trace of steps {_span_words(common)} there."
            )
        more = [numbered.files[i][0] for i in sharing if sets[i] != frozenset(common)]
        if more:
            notes.append(f"Compared over steps {_span_words(common)}, which all have; {_have_more(more)}.")
        return [numbered.files[i] for i in sharing], common, tuple(notes)
    return [], [], tuple(notes)


def _ranks_words(ranks: Sequence[int]) -> str:
    return f"Rank {ranks[0]} is" if len(ranks) == 1 else f"Ranks {_span_words(sorted(ranks))} are"


def _have_more(ranks: Sequence[int]) -> str:
    return (
        f"rank {ranks[0]} has others too" if len(ranks) == 1 else f"ranks {_span_words(sorted(ranks))} have others too"
    )


def _alignment_notes(alignment: Alignment, files: Sequence[Extract]) -> list[str]:
    notes = []
    if not any(len(file.collectives.key) for file in files):
        return ["The traces hold no collectives, so nobody can be seen to wait for another rank."]
    if alignment.by_time:
        together = sum(len(block.events) for block in alignment.blocks)
        notes.append(
            f"The traces do not hold the same collectives in the same order: {together} were matched because they end together."
            if together
            else "The traces do not hold the same collectives, and none end together, so waits are not numbered."
        )
    if alignment.apart:
        notes.append(
            f"{_collectives(alignment.apart)} ended at other times on other ranks: waits in them are left out."
        )
    if alignment.unmatched:
        notes.append(f"{_collectives(alignment.unmatched)} of one trace have no like in those of the other ranks.")
    cut = sum(file.left_out for file in files)
    if cut:
        notes.append(f"{_collectives(cut)} beyond the first of their files are left out.")
    return notes


def _collectives(count: int) -> str:
    return f"{count:,} collective{'' if count == 1 else 's'}"


def _stragglers(times: _Times, ranks: Sequence[int], waited: RankWaits, steps: int) -> tuple[Straggler, ...]:
    """The ranks that the others stand waiting for, the latest first."""
    exposed = waited.exposed_ns // steps
    cost = np.array([int(_median_of_others(exposed, i)) - int(exposed[i]) for i in range(len(ranks))])
    late = np.maximum(waited.late_ns // steps, cost)  # it may come late at several places of a step
    least = COST_SHARE * float(np.median(times.period))
    order = [int(i) for i in np.argsort(-late, kind="stable") if cost[i] >= least and waited.last[i]][:MOST_STRAGGLERS]
    if not order:
        return ()
    activities, did = times.did()
    stragglers = []
    for i in order:
        doing, doing_ns = _doing(activities, did[i] - np.array(_median_of_others(did, i), np.int64))
        stragglers.append(
            Straggler(
                rank=ranks[i],
                last=int(waited.last[i]),
                collectives=int(waited.collectives[i]),
                late_ns=int(late[i]),
                cost_ns=int(cost[i]),
                doing=doing,
                doing_excess_ns=doing_ns,
                idle_excess_ns=int(times.idle[i]) - int(_median_of_others(times.idle, i)),
            )
        )
    return tuple(stragglers)


def _doing(activities: Sequence[Activity], excess: Ints) -> tuple[str, int]:
    """The phase or idle cause with the greatest excess, and the module or operator in it that has most of that."""
    coarse = [i for i, activity in enumerate(activities) if activity.kind in ("phase", "idle")]
    best = max(coarse, key=lambda i: int(excess[i]), default=None)
    if best is None or excess[best] <= 0:
        return "", 0
    chosen = activities[best]
    if chosen.kind == "idle":
        return f"{chosen.name} (idle)", int(excess[best])
    for kind in ("module", "operator"):
        inside = [
            i for i, activity in enumerate(activities) if activity.kind == kind and activity.phase == chosen.phase
        ]
        most = max(inside, key=lambda i: int(excess[i]), default=None)
        if most is not None and activities[most].name and excess[most] >= NAMED_SHARE * excess[best]:
            return f"{chosen.phase} ({activities[most].name})", int(excess[most])
    return chosen.phase, int(excess[best])


# ---- which rank each file is, and whether the files are ranks of one job at all


class _Numbered(NamedTuple):
    """Files by rank, ascending, no rank twice; none where they are not ranks of one job. `notes` say what was left out."""

    files: tuple[tuple[int, Extract], ...]
    notes: tuple[str, ...]


def _number_files(extracts: Sequence[Extract]) -> _Numbered:
    """The rank of each file: as the trace says, else as the file is called, else its place among the files."""
    if len(extracts) < 2:
        return _Numbered((), ())
    summaries = [file.summary for file in extracts]
    stated = [file.rank for file in summaries]
    if not _are_ranks(extracts):
        return _Numbered((), ())
    worlds = {file.world_size for file in summaries if file.world_size is not None}
    if len(worlds) > 1:
        words = ", ".join(f"{size} ranks in {_first_with(summaries, size)}" for size in sorted(worlds))
        return _Numbered((), (f"The traces are not of one job: {words}.",))
    backends = {file.backend for file in extracts if file.backend}
    if len(backends) > 1:
        return _Numbered((), (f"The traces are not of one job: they ran with {' and '.join(sorted(backends))}.",))
    notes = []
    from_names = _from_names([Path(file.file).name for file in summaries])
    ranks = [
        rank if rank is not None else from_names[i] if from_names is not None else i for i, rank in enumerate(stated)
    ]
    if None in stated:
        unstated = stated.count(None)
        how = "their names" if from_names is not None else "their order"
        notes.append(f"{unstated} of {len(stated)} traces do not say which rank they are: it is taken from {how}.")
    by_rank: dict[int, list[Extract]] = {}
    for rank, file in zip(ranks, extracts, strict=True):
        by_rank.setdefault(rank, []).append(file)
    steps = _usual_steps(extracts)
    files = []
    for rank, same in sorted(by_rank.items()):
        chosen = max(same, key=lambda file: len(steps & set(file.steps.number.tolist())))
        files.append((rank, chosen))
        if len(same) > 1:
            left = ", ".join(Path(file.summary.file).name for file in same if file is not chosen)
            notes.append(f"Rank {rank} is there {len(same)} times: {left} left out of the comparison.")
    if len(files) < 2:
        return _Numbered((), tuple(notes))
    notes += _missing(worlds, [rank for rank, _ in files])
    return _Numbered(tuple(files), tuple(notes))


def _median_of_others(values: Ints, index: int) -> Ints:
    """The median of all rows of `values` but the one at `index`, whole."""
    return np.asarray(np.median(np.delete(values, index, axis=0), axis=0)).astype(np.int64)


def _span_words(numbers: Sequence[int]) -> str:
    """Ascending numbers in words: ``2 to 4``, ``0, 3``; the first ones of many."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    shown = ", ".join(map(str, numbers[:LISTED]))
    return shown if len(numbers) <= LISTED else f"{shown} and {len(numbers) - LISTED} more"


def _are_ranks(extracts: Sequence[Extract]) -> bool:
    """Whether the files are worth holding against each other as ranks: at least two tell of a job of several, or communicate."""
    distributed = sum(
        (file.summary.world_size or 0) > 1 or (file.summary.rank is not None and file.summary.world_size is None)
        for file in extracts
    )
    named = sum("rank" in Path(file.summary.file).name.lower() for file in extracts)
    talking = sum(len(file.collectives.key) > 0 for file in extracts)
    return max(distributed, named, talking) >= 2


def _from_names(names: Sequence[str]) -> list[int] | None:
    """Numbers in the files' names that tell them apart, by the first pattern that all have; None without."""
    for pattern in _NAMES:
        matches = [match for name in names if (match := pattern.search(name)) is not None]
        numbers = [int(match[1]) for match in matches if len(match[1]) < 7]
        if len(numbers) == len(names) and len(set(numbers)) > 1:
            return numbers
    return None


def _usual_steps(extracts: Sequence[Extract]) -> set[int]:
    """The steps that most files have."""
    counts: dict[int, int] = {}
    for file in extracts:
        for number in file.steps.number.tolist():
            counts[number] = counts.get(number, 0) + 1
    most = max(counts.values(), default=0)
    return {number for number, count in counts.items() if count == most}


def _missing(worlds: set[int], ranks: Sequence[int]) -> list[str]:
    world = max(worlds, default=None)
    if world is None:
        return []
    if ranks[-1] >= world:
        return [f"A trace is of rank {ranks[-1]}, but the job has {world} ranks: they may not be of one job."]
    missing = sorted(set(range(world)) - set(ranks))
    if not missing:
        return []
    here = f"{len(ranks)} of the job's {world} ranks are here (missing: {_span_words(missing)})"
    return [f"{here}: waits are for the latest of those that are, and all of them may have waited for another."]


def _first_with(summaries: Sequence[TraceSummary], world_size: int) -> str:
    return next(Path(file.file).name for file in summaries if file.world_size == world_size)
