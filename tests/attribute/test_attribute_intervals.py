from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.attribute.intervals import charge_once, length, subtract, union

Intervals = list[tuple[int, int]]
intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def instants(given_intervals: Intervals) -> set[int]:
    return {t for start, end in given_intervals for t in range(start, end)}


@given(intervals)
def test_union_covers_the_same_instants_in_disjoint_order(some: Intervals) -> None:
    merged = union(some)
    assert instants(merged) == instants(some)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(merged))
    assert length(some) == len(instants(some))


@given(intervals, intervals)
def test_subtract_is_set_difference(some: Intervals, holes: Intervals) -> None:
    left = subtract(some, holes)
    assert instants(left) == instants(some) - instants(holes)
    assert sum(end - start for start, end in left) == len(instants(left))


@given(intervals)
def test_every_busy_instant_is_charged_once_to_the_earliest(some: Intervals) -> None:
    charged = {t: piece.owner for piece in charge_once(some) for t in range(piece.start_ns, piece.end_ns)}
    assert set(charged) == instants(some)
    assert sum(p.end_ns - p.start_ns for p in charge_once(some)) == length(some)
    for instant, owner in charged.items():
        covering = [i for i, (start, end) in enumerate(some) if start <= instant < end]
        assert owner == min(covering, key=lambda i: (some[i][0], i))


def test_pieces_come_in_order() -> None:
    pieces = charge_once([(50, 60), (0, 10), (5, 20), (6, 8)])
    assert [tuple(piece) for piece in pieces] == [(0, 10, 1), (10, 20, 2), (50, 60, 0)]
