"""The same collective on several ranks: which is which, and how long each rank stood in it waiting for the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from profiler_kit.attribution.extract import Extract
from profiler_kit.traces.intervals import length, overlap, union
from profiler_kit.traces.table import Ints, Mask

# How far apart the ends of one collective may lie once the clocks are set by all of them: within a ring the last message
# arrives later here than there; beyond it the two are different collectives, or one that nobody waits in (a small broadcast).
APART_NS: Final = 1_000_000
APART_SHARE: Final = 0.1  # of the longest duration
AGREE: Final = 0.5  # of what is matched by order has to end together, or the order says nothing
# Waits below these are no rank's coming late, but how long a ring takes here and there.
SURE_SHARE: Final = 0.2  # of the shortest duration
SURE_NS: Final = 20_000
TOGETHER_NS: Final = 500_000
LEAST_SHARE: Final = 1 / 3  # of the shorter file's collectives: fewer that end together do so by chance
LEAST: Final = 3
MOST: Final = 2_000  # of a file: each is held against each


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Collectives of one step and group: `events[i, j]` is the i-th one's position in the columns of extract `members[j]`."""

    step: int
    members: tuple[int, ...]
    events: Ints

    def times(self, extracts: Sequence[Extract]) -> tuple[Ints, Ints]:
        """Starts and ends, in the shape of `events`."""
        columns = [extracts[member].collectives for member in self.members]
        starts = [column.start_ns[events] for column, events in zip(columns, self.events.T, strict=True)]
        ends = [column.end_ns[events] for column, events in zip(columns, self.events.T, strict=True)]
        return np.stack(starts, axis=1), np.stack(ends, axis=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alignment:
    """The collectives that several files share. `unmatched`: events without their like in the other files of their group;
    `apart`: collectives matched by order that ended at other times. `by_time`: the orders differ, so equal ends decided.
    """

    blocks: tuple[Block, ...]
    unmatched: int
    apart: int
    by_time: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankWaits:
    """Who waited, by extract. `wait_ns`: what it stood in collectives for ranks that came later, `exposed_ns`: what of that no
    computation covered; `last`: in how many it came last, surely; `collectives`: how many it shares with others. `late_ns`: how
    much later than the median of the others it came to the collective of a step where that is most, added up over the steps.
    """

    wait_ns: Ints
    exposed_ns: Ints
    last: Ints
    collectives: Ints
    late_ns: Ints


def align(extracts: Sequence[Extract], steps: Sequence[int]) -> Alignment:
    """The collectives that the extracts share in `steps`: by their order in step and process group, or else by their ends."""
    sequences = [_sequences(extract, steps) for extract in extracts]
    total = sum(len(positions) for places in sequences for positions in places.values())
    matched: list[Block] = []
    for place in sorted(set().union(*sequences)):
        members = tuple(i for i, places in enumerate(sequences) if place in places)
        if len(members) > 1:
            matched += _in_order(place[0], members, [sequences[i][place] for i in members], extracts)
    in_order = sum(len(block.events) for block in matched)
    blocks = _ending_together(matched, extracts)
    together = sum(len(block.events) for block in blocks)
    if in_order and together >= AGREE * in_order:
        return Alignment(blocks=tuple(blocks), unmatched=total - _events(matched), apart=in_order - together)
    blocks = _matched_by_ends(extracts, steps)
    return Alignment(blocks=tuple(blocks), unmatched=total - _events(blocks), apart=0, by_time=True)


def _events(blocks: Sequence[Block]) -> int:
    return sum(block.events.size for block in blocks)


def rank_waits(extracts: Sequence[Extract], blocks: Sequence[Block]) -> RankWaits:
    """Who waited for whom in `blocks`, over all steps."""
    count = len(extracts)
    last, shared = np.zeros(count, np.int64), np.zeros(count, np.int64)
    waited, exposed = np.zeros(count, np.int64), np.zeros(count, np.int64)
    stretches: list[list[Ints]] = [[] for _ in extracts]
    for block in blocks:
        starts, ends = block.times(extracts)
        durations = ends - starts
        least = durations.min(axis=1)
        shared[list(block.members)] += len(block.events)
        sure = durations.max(axis=1) - least > np.maximum(SURE_NS, SURE_SHARE * least)
        np.add.at(last, np.array(block.members)[durations.argmin(axis=1)[sure]], 1)
        for column, member in enumerate(block.members):
            stretches[member].append(np.stack((starts[:, column], ends[:, column] - least)))
    for member, parts in enumerate(stretches):
        if parts:
            merged = union(*np.concatenate(parts, axis=1))
            waited[member] = length(merged)
            exposed[member] = int(overlap(extracts[member].bare, merged.start, merged.end).sum())
    return RankWaits(
        wait_ns=waited, exposed_ns=exposed, last=last, collectives=shared, late_ns=_late(extracts, blocks).sum(axis=0)
    )


def _late(extracts: Sequence[Extract], blocks: Sequence[Block]) -> Ints:
    """By step and extract: how late it came to the one collective that it came to latest.

    What one rank does more than others makes it late for the first collective behind that, and for further ones as far as the
    others could go on beside them: the largest lateness is what it did more, the sum would count that again and again.
    """
    place = {step: row for row, step in enumerate(sorted({block.step for block in blocks}))}
    late = np.zeros((len(place), len(extracts)), np.int64)
    for block in blocks:
        starts, ends = block.times(extracts)
        durations = ends - starts
        most = (_median_of_others(durations) - durations).max(axis=0)
        row = late[place[block.step]]
        members = list(block.members)
        row[members] = np.maximum(row[members], most)
    return late


def _median_of_others(values: Ints) -> Ints:
    """In each row, for each value the median of the row's others, whole."""
    count = values.shape[1]
    order = np.argsort(values, axis=1, kind="stable")
    ascending = np.take_along_axis(values, order, axis=1)
    at = np.argsort(order, axis=1, kind="stable")  # where each value stands in its row

    def other(index: int) -> Ints:
        """The others' value at `index` of their order: one further from where the left out value stood."""
        return np.where(at <= index, ascending[:, index + 1, None], ascending[:, index, None])

    middle = (count - 1) // 2
    return other(middle) if count % 2 == 0 else (other(middle - 1) + other(middle)) // 2


def _sequences(extract: Extract, steps: Sequence[int]) -> dict[tuple[int, str], Ints]:
    """The positions of an extract's collectives, in order, by (step, process group)."""
    columns = extract.collectives
    groups: dict[tuple[int, str], list[int]] = {}
    names = [key.group for key in columns.keys]
    chosen_steps = set(steps)
    for position, (step, key) in enumerate(zip(columns.step.tolist(), columns.key.tolist(), strict=True)):
        if step in chosen_steps:
            groups.setdefault((step, names[key]), []).append(position)
    return {place: np.array(positions, np.int64) for place, positions in groups.items()}


def _in_order(
    step: int, members: tuple[int, ...], sequences: Sequence[Ints], extracts: Sequence[Extract]
) -> list[Block]:
    """The i-th with the i-th; where the sequences differ, only kinds and sizes that all have equally often."""
    names: dict[tuple[str, int], int] = {}
    keys = []
    for member, events in zip(members, sequences, strict=True):
        columns = extracts[member].collectives
        number = np.array([names.setdefault((key.kind, key.size), len(names)) for key in columns.keys], np.int64)
        keys.append(number[columns.key[events]])
    if all(np.array_equal(other, keys[0]) for other in keys[1:]):
        return [Block(step=step, members=members, events=np.stack(sequences, axis=1))]
    matched = []
    for key in range(len(names)):
        of = [events[own == key] for events, own in zip(sequences, keys, strict=True)]
        if len(of[0]) and len({len(events) for events in of}) == 1:
            matched.append(Block(step=step, members=members, events=np.stack(of, axis=1)))
    return matched


def _ending_together(blocks: Sequence[Block], extracts: Sequence[Extract]) -> list[Block]:
    """What of the blocks ends on all its ranks at once, with each rank's clock set by the median of what it shares."""
    clocks = _clocks(blocks, extracts)
    matched = []
    for block in blocks:
        starts, ends = block.times(extracts)
        there = ends - np.array([clocks[member] for member in block.members], np.int64)
        apart = there.max(axis=1) - there.min(axis=1)
        together: Mask = apart <= np.maximum(APART_NS, APART_SHARE * (ends - starts).max(axis=1))
        if together.any():
            matched.append(Block(step=block.step, members=block.members, events=block.events[together]))
    return matched


def _clocks(blocks: Sequence[Block], extracts: Sequence[Extract]) -> Mapping[int, int]:
    """How far each extract's clock is ahead: of the first one's, or of the first that it is linked to by collectives."""
    ends = [block.times(extracts)[1] for block in blocks]
    ahead: dict[int, int] = {}
    left = {member for block in blocks for member in block.members}
    while left:
        apart: dict[int, list[Ints]] = {}
        for block, end in zip(blocks, ends, strict=True):
            linked = next((column for column, member in enumerate(block.members) if member in ahead), None)
            if linked is not None:
                reference = end[:, linked] - ahead[block.members[linked]]
                for column, member in enumerate(block.members):
                    if member not in ahead:
                        apart.setdefault(member, []).append(end[:, column] - reference)
        for member, differences in apart.items():
            ahead[member] = int(np.median(np.concatenate(differences)))
        if not apart:  # nobody left is linked to one whose clock is linked
            ahead[min(left)] = 0
        left -= ahead.keys()
    return ahead


# ---- by when they end, for traces that hold but a part of the collectives: their order says nothing


def _matched_by_ends(extracts: Sequence[Extract], steps: Sequence[int]) -> list[Block]:
    """What ends together with a collective of the first extract, under the clock offset that brings most together."""
    ours = _rows(extracts[0], steps)
    partners: dict[int, list[tuple[int, int]]] = {}
    for member, other in enumerate(extracts[1:], 1):
        theirs = _rows(other, steps)
        pairs = _pairs(extracts[0], ours, other, theirs)
        if len(pairs) >= max(LEAST, LEAST_SHARE * min(len(ours), len(theirs))):
            for mine, its in pairs:
                partners.setdefault(mine, []).append((member, its))
    return [
        Block(
            step=int(extracts[0].collectives.step[mine]),
            members=(0, *(member for member, _ in others)),
            events=np.array([[mine, *(event for _, event in others)]], np.int64),
        )
        for mine, others in sorted(partners.items())
    ]


def _rows(extract: Extract, steps: Sequence[int]) -> Ints:
    return np.flatnonzero(np.isin(extract.collectives.step, np.array(steps, np.int64)))[:MOST]


def _pairs(first: Extract, ours: Ints, other: Extract, theirs: Ints) -> list[tuple[int, int]]:
    names: dict[tuple[str, int], int] = {}
    mine, its = (
        np.array(
            [names.setdefault((key.kind, key.size), len(names)) for key in each.collectives.keys] or [0], np.int64
        )[each.collectives.key[rows]]
        for each, rows in ((first, ours), (other, theirs))
    )
    apart = other.collectives.end_ns[theirs][None, :] - first.collectives.end_ns[ours][:, None]
    like = mine[:, None] == its[None, :]
    differences = np.sort(apart[like])
    if not len(differences):
        return []
    near = np.searchsorted(differences, differences + TOGETHER_NS, side="right") - np.arange(len(differences))
    best = int(near.argmax())
    offset = int(np.median(differences[best : best + int(near[best])]))
    close = np.where(like, np.abs(apart - offset), np.iinfo(np.int64).max)
    return [
        (int(ours[i]), int(theirs[j]))
        for i, j in enumerate(close.argmin(axis=1).tolist())
        if close[i, j] <= TOGETHER_NS and int(close[:, j].argmin()) == i
    ]
