"""Matching of collectives across ranks, and the time that each rank waited in them for other ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from profiler_kit.attribution.rank_extract import RankExtract
from profiler_kit.traces.intervals import length, overlap, union
from profiler_kit.traces.table import Ints, Mask

# The largest difference between the ends of one collective on two ranks, after the clocks are aligned. In a ring, the
# last message arrives at different times. With a larger difference, they are two different collectives, or one without
# waits (a small broadcast).
MAX_END_DIFFERENCE_NS: Final = 1_000_000
MAX_END_DIFFERENCE_SHARE: Final = 0.1  # of the longest duration
# Of the step, for collectives on the host: a thread that waits for a core ends late. Those of two steps are a whole step apart.
MAX_HOST_END_DIFFERENCE_SHARE: Final = 1 / 3
HOST_BACKEND: Final = "gloo"
# share of collectives matched by order that must end together; below it the order means nothing
MIN_AGREEING_SHARE: Final = 0.5
# Shorter waits are due to the ring, not to a late rank.
MIN_WAIT_SHARE: Final = 0.2  # of the shortest duration
MIN_WAIT_NS: Final = 20_000
MAX_MATCHED_DIFFERENCE_NS: Final = 500_000
MIN_MATCHED_SHARE: Final = 1 / 3  # of the collectives of the shorter file: fewer matches are chance
MIN_MATCHED_COLLECTIVES: Final = 3
MAX_MATCHED_BY_END: Final = 2_000  # per file, as the number of comparisons is quadratic


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """Collectives of one step and group.

    `events[i, j]`: the position of collective i in the columns of extract `members[j]`.
    """

    step: int
    members: tuple[int, ...]
    events: Ints

    def times(self, extracts: Sequence[RankExtract]) -> tuple[Ints, Ints]:
        """Return starts and ends, in the shape of `events`."""
        columns = [extracts[member].collectives for member in self.members]
        starts = [column.start_ns[events] for column, events in zip(columns, self.events.T, strict=True)]
        ends = [column.end_ns[events] for column, events in zip(columns, self.events.T, strict=True)]
        return np.stack(starts, axis=1), np.stack(ends, axis=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollectiveAlignment:
    """The collectives that several files share.

    `unmatched`: events without a counterpart in the other files of their group. `end_mismatches`: collectives matched
    by order whose ends differ. `matched_by_end`: the orders differ, so collectives were matched by their ends.
    """

    blocks: tuple[Block, ...]
    unmatched: int
    end_mismatches: int
    matched_by_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankWaits:
    """Waits by extract.

    `wait_ns`: time in collectives in which the rank waited for later ranks. `exposed_ns`: the part of it that no
    computation covers. `last`: the number of collectives in which the rank was clearly the last. `collectives`: the
    number of collectives shared with other ranks. `late_ns`: how much later than the median of the others it came to
    the collective of a step where that is most, summed over the steps.
    """

    wait_ns: Ints
    exposed_ns: Ints
    last: Ints
    collectives: Ints
    late_ns: Ints


def align_collectives(extracts: Sequence[RankExtract], steps: Sequence[int]) -> CollectiveAlignment:
    """Return the collectives that the extracts share in `steps`.

    They are matched by their order in step and process group, or else by their ends.
    """
    sequences = [_sequences_by_group(extract, steps) for extract in extracts]
    total = sum(len(positions) for positions_by_group in sequences for positions in positions_by_group.values())
    blocks_in_order: list[Block] = []
    for group in sorted(set().union(*sequences)):
        members = tuple(i for i, positions_by_group in enumerate(sequences) if group in positions_by_group)
        if len(members) > 1:
            blocks_in_order += _match_in_order(group[0], members, [sequences[i][group] for i in members], extracts)
    in_order = sum(len(block.events) for block in blocks_in_order)
    blocks = _filter_by_end(blocks_in_order, extracts)
    agreeing = sum(len(block.events) for block in blocks)
    if in_order and agreeing >= MIN_AGREEING_SHARE * in_order:
        return CollectiveAlignment(
            blocks=tuple(blocks), unmatched=total - _event_count(blocks_in_order), end_mismatches=in_order - agreeing
        )
    blocks = _match_by_end(extracts, steps)
    return CollectiveAlignment(
        blocks=tuple(blocks), unmatched=total - _event_count(blocks), end_mismatches=0, matched_by_end=True
    )


def _event_count(blocks: Sequence[Block]) -> int:
    return sum(block.events.size for block in blocks)


def rank_waits(extracts: Sequence[RankExtract], blocks: Sequence[Block]) -> RankWaits:
    """Return the waits of each rank in `blocks`, over all steps."""
    count = len(extracts)
    last, collectives = np.zeros(count, np.int64), np.zeros(count, np.int64)
    wait_ns, exposed_ns = np.zeros(count, np.int64), np.zeros(count, np.int64)
    waits: list[list[Ints]] = [[] for _ in extracts]
    for block in blocks:
        starts, ends = block.times(extracts)
        durations = ends - starts
        shortest = durations.min(axis=1)
        collectives[list(block.members)] += len(block.events)
        has_wait = durations.max(axis=1) - shortest > np.maximum(MIN_WAIT_NS, MIN_WAIT_SHARE * shortest)
        np.add.at(last, np.array(block.members)[durations.argmin(axis=1)[has_wait]], 1)
        for column, member in enumerate(block.members):
            waits[member].append(np.stack((starts[:, column], ends[:, column] - shortest)))
    for member, parts in enumerate(waits):
        if parts:
            merged = union(*np.concatenate(parts, axis=1))
            wait_ns[member] = length(merged)
            exposed_ns[member] = int(overlap(extracts[member].exposed, merged.start, merged.end).sum())
    return RankWaits(
        wait_ns=wait_ns,
        exposed_ns=exposed_ns,
        last=last,
        collectives=collectives,
        late_ns=_lateness(extracts, blocks).sum(axis=0),
    )


def _lateness(extracts: Sequence[RankExtract], blocks: Sequence[Block]) -> Ints:
    """Return, by step and extract, the lateness at the collective where it is greatest.

    Extra work of one rank makes it late for the next collective, and for later ones too if the others could continue
    meanwhile. The greatest lateness is the extra work; the sum would count it several times.
    """
    step_row = {step: step_lateness for step_lateness, step in enumerate(sorted({block.step for block in blocks}))}
    late = np.zeros((len(step_row), len(extracts)), np.int64)
    for block in blocks:
        starts, ends = block.times(extracts)
        durations = ends - starts
        latest = (_median_of_others(durations) - durations).max(axis=0)
        step_lateness = late[step_row[block.step]]
        members = list(block.members)
        step_lateness[members] = np.maximum(step_lateness[members], latest)
    return late


def _median_of_others(values: Ints) -> Ints:
    """Return, for each value, the median of the other values in its row, as an integer."""
    count = values.shape[1]
    order = np.argsort(values, axis=1, kind="stable")
    ascending = np.take_along_axis(values, order, axis=1)
    rank_of_value = np.argsort(order, axis=1, kind="stable")  # the rank of each value in its row

    def other_value(index: int) -> Ints:
        """Return the value at `index` in the order of the other values."""
        return np.where(rank_of_value <= index, ascending[:, index + 1, None], ascending[:, index, None])

    middle = (count - 1) // 2
    return other_value(middle) if count % 2 == 0 else (other_value(middle - 1) + other_value(middle)) // 2


def _sequences_by_group(extract: RankExtract, steps: Sequence[int]) -> dict[tuple[int, str], Ints]:
    """Return the positions of an extract's collectives in order, by (step, process group)."""
    columns = extract.collectives
    groups: dict[tuple[int, str], list[int]] = {}
    names = [key.group for key in columns.keys]
    chosen_steps = set(steps)
    for position, (step, key) in enumerate(zip(columns.step.tolist(), columns.key.tolist(), strict=True)):
        if step in chosen_steps:
            groups.setdefault((step, names[key]), []).append(position)
    return {place: np.array(positions, np.int64) for place, positions in groups.items()}


def _match_in_order(
    step: int, members: tuple[int, ...], sequences: Sequence[Ints], extracts: Sequence[RankExtract]
) -> list[Block]:
    """Match collective i of each sequence.

    If the sequences differ, match only kinds and sizes that occur equally often in all.
    """
    names: dict[tuple[str, int], int] = {}
    keys = []
    for member, events in zip(members, sequences, strict=True):
        columns = extracts[member].collectives
        number = np.array([names.setdefault((key.kind, key.size), len(names)) for key in columns.keys], np.int64)
        keys.append(number[columns.key[events]])
    if all(np.array_equal(member_keys, keys[0]) for member_keys in keys[1:]):
        return [Block(step=step, members=members, events=np.stack(sequences, axis=1))]
    matched = []
    for key in range(len(names)):
        same_key = [events[event_keys == key] for events, event_keys in zip(sequences, keys, strict=True)]
        if len(same_key[0]) and len({len(events) for events in same_key}) == 1:
            matched.append(Block(step=step, members=members, events=np.stack(same_key, axis=1)))
    return matched


def _filter_by_end(blocks: Sequence[Block], extracts: Sequence[RankExtract]) -> list[Block]:
    """Return the collectives of `blocks` that end at the same time on all ranks.

    The clocks are aligned by the median difference.
    """
    clocks = clock_offsets(blocks, extracts)
    matched = []
    for block in blocks:
        starts, ends = block.times(extracts)
        common_clock = ends - np.array([clocks[member] for member in block.members], np.int64)
        difference = common_clock.max(axis=1) - common_clock.min(axis=1)
        agrees: Mask = difference <= np.maximum(
            _end_difference_ns([extracts[member] for member in block.members]),
            MAX_END_DIFFERENCE_SHARE * (ends - starts).max(axis=1),
        )
        if agrees.any():
            matched.append(Block(step=block.step, members=block.members, events=block.events[agrees]))
    return matched


def _end_difference_ns(extracts: Sequence[RankExtract]) -> float:
    """The difference between the ends of one collective that is allowed for any duration."""
    if any(extract.backend != HOST_BACKEND for extract in extracts):
        return MAX_END_DIFFERENCE_NS
    periods = np.concatenate([extract.steps.period_ns for extract in extracts])
    return max(MAX_END_DIFFERENCE_NS, MAX_HOST_END_DIFFERENCE_SHARE * float(np.median(periods)) if len(periods) else 0)


def clock_offsets(blocks: Sequence[Block], extracts: Sequence[RankExtract]) -> Mapping[int, int]:
    """Return how far each extract's clock is ahead of the first extract that collectives link it to."""
    ends = [block.times(extracts)[1] for block in blocks]
    offsets: dict[int, int] = {}
    remaining = {member for block in blocks for member in block.members}
    while remaining:
        differences_by_member: dict[int, list[Ints]] = {}
        for block, end in zip(blocks, ends, strict=True):
            linked = next((column for column, member in enumerate(block.members) if member in offsets), None)
            if linked is not None:
                reference = end[:, linked] - offsets[block.members[linked]]
                for column, member in enumerate(block.members):
                    if member not in offsets:
                        differences_by_member.setdefault(member, []).append(end[:, column] - reference)
        for member, differences in differences_by_member.items():
            offsets[member] = int(np.median(np.concatenate(differences)))
        if not differences_by_member:  # no remaining member shares collectives with an aligned one
            offsets[min(remaining)] = 0
        remaining -= offsets.keys()
    return offsets


# ---- matching by end, for traces that hold only a part of the collectives, so that the order means nothing


def _match_by_end(extracts: Sequence[RankExtract], steps: Sequence[int]) -> list[Block]:
    """Match collectives that end together with one of the first extract, under the clock offset with the most matches."""
    first_rows = _collectives_in_steps(extracts[0], steps)
    partners: dict[int, list[tuple[int, int]]] = {}
    for member, other in enumerate(extracts[1:], 1):
        other_rows = _collectives_in_steps(other, steps)
        pairs = _pair_by_end(extracts[0], first_rows, other, other_rows)
        if len(pairs) >= max(MIN_MATCHED_COLLECTIVES, MIN_MATCHED_SHARE * min(len(first_rows), len(other_rows))):
            for first_event, other_event in pairs:
                partners.setdefault(first_event, []).append((member, other_event))
    return [
        Block(
            step=int(extracts[0].collectives.step[first_event]),
            members=(0, *(member for member, _ in matches)),
            events=np.array([[first_event, *(event for _, event in matches)]], np.int64),
        )
        for first_event, matches in sorted(partners.items())
    ]


def _collectives_in_steps(extract: RankExtract, steps: Sequence[int]) -> Ints:
    return np.flatnonzero(np.isin(extract.collectives.step, np.array(steps, np.int64)))[:MAX_MATCHED_BY_END]


def _pair_by_end(first: RankExtract, first_rows: Ints, other: RankExtract, other_rows: Ints) -> list[tuple[int, int]]:
    names: dict[tuple[str, int], int] = {}
    first_keys, other_keys = (
        np.array(
            [names.setdefault((key.kind, key.size), len(names)) for key in file.collectives.keys] or [0], np.int64
        )[file.collectives.key[rows]]
        for file, rows in ((first, first_rows), (other, other_rows))
    )
    difference = other.collectives.end_ns[other_rows][None, :] - first.collectives.end_ns[first_rows][:, None]
    same_kind = first_keys[:, None] == other_keys[None, :]
    differences = np.sort(difference[same_kind])
    if not len(differences):
        return []
    count_near = np.searchsorted(differences, differences + MAX_MATCHED_DIFFERENCE_NS, side="right") - np.arange(
        len(differences)
    )
    best = int(count_near.argmax())
    offset = int(np.median(differences[best : best + int(count_near[best])]))
    distance = np.where(same_kind, np.abs(difference - offset), np.iinfo(np.int64).max)
    return [
        (int(first_rows[i]), int(other_rows[j]))
        for i, j in enumerate(distance.argmin(axis=1).tolist())
        if distance[i, j] <= MAX_MATCHED_DIFFERENCE_NS and int(distance[:, j].argmin()) == i
    ]
