"""The collectives of a step one by one: the buckets of gradients, the parameters of units. They are the same on all ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.rank_extract import Collective, RankExtract
from profiler_kit.attribution.rank_waits import Block
from profiler_kit.records.ranks import StepCollective
from profiler_kit.traces.intervals import overlap
from profiler_kit.traces.table import NONE

MAX_COLLECTIVES: Final = 500  # of a step; a job with more sends small messages, and their sums say more
MIN_STEP_SHARE: Final = 0.5  # of the steps: a rarer collective is a metric, or a checkpoint


class _Occurrence(NamedTuple):
    """One collective of one step: its key, and the times of its median rank in ns."""

    key: Collective
    start_ns: float
    duration_ns: float
    exposed_ns: float
    wait_ns: float


def step_collectives(
    extracts: Sequence[RankExtract], blocks: Sequence[Block], steps: Sequence[int]
) -> tuple[StepCollective, ...]:
    """The collectives of `blocks` by their place in the step, as medians over `steps`; empty for steps with too many of them."""
    occurrences: defaultdict[tuple[tuple[int, ...], int], list[_Occurrence]] = defaultdict(list)
    for block in blocks:
        for place, occurrence in _places(extracts, block):
            occurrences[block.members, place].append(occurrence)
    regular = {
        place: repetitions
        for place, repetitions in occurrences.items()
        if len(repetitions) >= max(1.0, MIN_STEP_SHARE * len(steps))
    }
    if not regular or len(regular) > MAX_COLLECTIVES:
        return ()
    rows = sorted((_median(repetitions) for repetitions in regular.values()), key=lambda row: row.start_ns)
    return tuple(
        StepCollective(
            number=number,
            kind=row.key.kind,
            group=row.key.group,
            bytes=row.key.size if row.key.size != NONE else None,
            start_ns=round(row.start_ns),
            duration_ns=round(row.duration_ns),
            exposed_ns=round(row.exposed_ns),
            wait_ns=round(row.wait_ns),
        )
        for number, row in enumerate(rows, 1)
    )


def _places(extracts: Sequence[RankExtract], block: Block) -> list[tuple[int, _Occurrence]]:
    """Each collective of `block` with its place among those of the step in the first member's file."""
    first = extracts[block.members[0]].collectives
    in_step = np.flatnonzero(first.step == block.step)
    place = np.searchsorted(in_step, block.events[:, 0])
    starts, ends = block.times(extracts)
    wait = (ends - starts) - (ends - starts).min(axis=1, keepdims=True)
    exposed = np.stack(
        [
            overlap(extracts[member].exposed, starts[:, column], ends[:, column])
            for column, member in enumerate(block.members)
        ],
        axis=1,
    )
    begins = np.array([_step_start(extracts[member], block.step) for member in block.members], np.int64)
    figures = [np.median(values, axis=1) for values in (starts - begins, ends - starts, exposed, wait)]
    return [
        (int(at), _Occurrence(first.keys[first.key[event]], *(float(figure[i]) for figure in figures)))
        for i, (at, event) in enumerate(zip(place, block.events[:, 0], strict=True))
    ]


def _step_start(extract: RankExtract, step: int) -> int:
    at = np.flatnonzero(extract.steps.number == step)
    return int(extract.steps.start_ns[at[0]]) if len(at) else 0


def _median(repetitions: list[_Occurrence]) -> _Occurrence:
    """The times of a collective over its steps: the median, because a paused step would move the mean."""
    times = zip(*((o.start_ns, o.duration_ns, o.exposed_ns, o.wait_ns) for o in repetitions), strict=True)
    return _Occurrence(repetitions[0].key, *(median(values) for values in times))
