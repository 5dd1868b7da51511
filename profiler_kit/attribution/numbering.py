"""Which rank each file is, and whether the files are ranks of one job at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.extract import Extract
from profiler_kit.records.traces import TraceSummary
from profiler_kit.traces.table import Ints

NAMED: Final = 8  # ranks or files that a note names one by one
_NAMES: Final = (
    re.compile(r"rank[-_. ]?(\d+)", re.IGNORECASE),  # rank3, rank-0of128, rank_12
    re.compile(r"worker[-_. ]?(\d+)", re.IGNORECASE),
    re.compile(r"[-_.](\d+)(?=\.|\Z)"),  # trace_3.json.gz
)


class Numbered(NamedTuple):
    """Files by rank, ascending, no rank twice; none where they are not ranks of one job. `notes` say what was left out."""

    files: tuple[tuple[int, Extract], ...]
    notes: tuple[str, ...]


def numbered(extracts: Sequence[Extract]) -> Numbered:
    """The rank of each file: as the trace says, else as the file is called, else its place among the files."""
    if len(extracts) < 2:
        return Numbered((), ())
    summaries = [one.summary for one in extracts]
    said = [one.rank for one in summaries]
    if not _are_ranks(extracts):
        return Numbered((), ())
    worlds = {one.world_size for one in summaries if one.world_size is not None}
    if len(worlds) > 1:
        words = ", ".join(f"{size} ranks in {_first_of(summaries, size)}" for size in sorted(worlds))
        return Numbered((), (f"The traces are not of one job: {words}.",))
    backends = {one.backend for one in extracts if one.backend}
    if len(backends) > 1:
        return Numbered((), (f"The traces are not of one job: they ran with {' and '.join(sorted(backends))}.",))
    notes = []
    called = _from_names([Path(one.file).name for one in summaries])
    ranks = [rank if rank is not None else called[i] if called is not None else i for i, rank in enumerate(said)]
    if None in said:
        unsaid = said.count(None)
        how = "their names" if called is not None else "their order"
        notes.append(f"{unsaid} of {len(said)} traces do not say which rank they are: it is taken from {how}.")
    by_rank: dict[int, list[Extract]] = {}
    for rank, one in zip(ranks, extracts, strict=True):
        by_rank.setdefault(rank, []).append(one)
    steps = _usual_steps(extracts)
    files = []
    for rank, found in sorted(by_rank.items()):
        chosen = max(found, key=lambda one: len(steps & set(one.steps.number.tolist())))
        files.append((rank, chosen))
        if len(found) > 1:
            left = ", ".join(Path(one.summary.file).name for one in found if one is not chosen)
            notes.append(f"Rank {rank} is there {len(found)} times: {left} left out of the comparison.")
    if len(files) < 2:
        return Numbered((), tuple(notes))
    notes += _missing(worlds, [rank for rank, _ in files])
    return Numbered(tuple(files), tuple(notes))


def others_than(values: Ints, index: int) -> Ints:
    """The median of all rows of `values` but the one at `index`, whole."""
    return np.asarray(np.median(np.delete(values, index, axis=0), axis=0)).astype(np.int64)


def span_words(numbers: Sequence[int]) -> str:
    """Ascending numbers in words: ``2 to 4``, ``0, 3``; the first ones of many."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    shown = ", ".join(map(str, numbers[:NAMED]))
    return shown if len(numbers) <= NAMED else f"{shown} and {len(numbers) - NAMED} more"


def _are_ranks(extracts: Sequence[Extract]) -> bool:
    """Whether the files are worth holding against each other as ranks: at least two tell of a job of several, or communicate."""
    distributed = sum(
        (one.summary.world_size or 0) > 1 or (one.summary.rank is not None and one.summary.world_size is None)
        for one in extracts
    )
    named = sum("rank" in Path(one.summary.file).name.lower() for one in extracts)
    talking = sum(len(one.collectives.key) > 0 for one in extracts)
    return max(distributed, named, talking) >= 2


def _from_names(names: Sequence[str]) -> list[int] | None:
    """Numbers in the files' names that tell them apart, by the first pattern that all have; None without."""
    for pattern in _NAMES:
        found = [match for name in names if (match := pattern.search(name)) is not None]
        numbers = [int(match[1]) for match in found if len(match[1]) < 7]
        if len(numbers) == len(names) and len(set(numbers)) > 1:
            return numbers
    return None


def _usual_steps(extracts: Sequence[Extract]) -> set[int]:
    """The steps that most files have."""
    counts: dict[int, int] = {}
    for one in extracts:
        for number in one.steps.number.tolist():
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
    here = f"{len(ranks)} of the job's {world} ranks are here (missing: {span_words(missing)})"
    return [f"{here}: waits are for the latest of those that are, and all of them may have waited for another."]


def _first_of(summaries: Sequence[TraceSummary], world_size: int) -> str:
    return next(Path(one.file).name for one in summaries if one.world_size == world_size)
