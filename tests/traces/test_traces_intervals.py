"""Interval algebra against sets of instants."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.traces import intervals as algebra
from profiler_kit.traces.table import Ints

interval = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))
intervals = st.lists(interval, max_size=12)


def columns(pairs: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    return np.array([start for start, _ in pairs], np.int64), np.array([end for _, end in pairs], np.int64)


def instants(pairs: list[tuple[int, int]]) -> set[int]:
    return {at for start, end in pairs for at in range(start, end)}


def pairs_of(found: algebra.Intervals) -> list[tuple[int, int]]:
    return list(zip(found.start.tolist(), found.end.tolist(), strict=True))


def assert_disjoint(found: algebra.Intervals) -> None:
    assert (found.end > found.start).all()
    assert (found.start[1:] > found.end[:-1]).all()


@given(intervals)
def test_union_holds_each_instant_once(pairs: list[tuple[int, int]]) -> None:
    result = algebra.union(*columns(pairs))
    assert_disjoint(result)
    assert instants(pairs_of(result)) == instants(pairs)
    assert algebra.length(result) == len(instants(pairs))
    in_order = algebra.union(*columns(sorted(pairs)), ordered=True)
    assert pairs_of(in_order) == pairs_of(result)


@given(intervals, intervals)
def test_subtract_and_join(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    left, right = algebra.union(*columns(one)), algebra.union(*columns(other))
    difference = algebra.subtract(left, right)
    assert_disjoint(difference)
    assert instants(pairs_of(difference)) == instants(one) - instants(other)
    assert algebra.length(difference) == len(instants(one) - instants(other))
    assert instants(pairs_of(algebra.join(left, right))) == instants(one) | instants(other)


@given(intervals, intervals)
def test_overlap_counts_the_instants_inside(covering: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    result = algebra.overlap(algebra.union(*columns(covering)), *columns(asked))
    assert result.tolist() == [len(instants(covering) & set(range(start, end))) for start, end in asked]


@given(intervals)
def test_charge_gives_every_instant_to_the_first_that_covers_it(pairs: list[tuple[int, int]]) -> None:
    pairs = sorted(pairs, key=lambda pair: pair[0])
    charges = algebra.assign_to_first(*columns(pairs))
    instants: set[int] = set()
    reach = pairs[0][0] if pairs else 0
    for (start, end), piece, gap, covered, before in zip(pairs, *(column.tolist() for column in (
        charges.piece, charges.gap, charges.covered, charges.before)), strict=True):  # fmt: skip
        assert set(range(end - piece, end)) == set(range(start, end)) - instants  # the last `piece` ns, and no others
        assert gap == max(start - reach, 0)
        assert covered == reach
        assert gap == 0 or pairs[before][1] == covered
        instants |= set(range(start, end))
        reach = max(reach, end)
    assert charges.piece.sum() == algebra.length(algebra.union(*columns(pairs)))
    if pairs:
        assert charges.piece.sum() + charges.gap.sum() == reach - pairs[0][0]


@given(intervals)
def test_charged_pieces_come_in_order_and_do_not_overlap(pairs: list[tuple[int, int]]) -> None:
    start, end = columns(sorted(pairs, key=lambda pair: pair[0]))
    piece = algebra.assign_to_first(start, end).piece
    charged = piece > 0
    starts, ends = (end - piece)[charged], end[charged]
    assert (starts[1:] >= ends[:-1]).all()


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2**60)), max_size=8))
def test_sums_by_key_are_exact(pairs: list[tuple[int, int]]) -> None:
    key, values = columns(pairs)
    expected = [sum(value for which, value in pairs if which == number) for number in range(5)]
    assert algebra.sum_by(key, values, 5).tolist() == expected
