"""Which events repeat, and which of them end a step."""

from __future__ import annotations

import pytest

from profiler_kit.recording.cycles import StepEnds, find_cycle


@pytest.mark.parametrize(
    ("events", "distinct", "cycle"),
    [
        ("A", 1, "A"),
        ("A", 2, None),
        ("AB", 1, None),
        ("ABAB", 1, "AB"),
        ("ABABA", 1, None),  # in the middle of a step
        ("AABAAB", 2, "AAB"),
        ("AABAA", 2, None),
        ("ABBABB", 2, "ABB"),
    ],
)
def test_cycle(events: str, distinct: int, cycle: str | None) -> None:
    assert find_cycle(events, distinct=distinct) == (tuple(cycle) if cycle else None)


@pytest.mark.parametrize(
    ("cycle", "events", "ends"),
    [("A", "ABA", "101"), ("AB", "ABAB", "0101"), ("AB", "AABAAAB", "0010001"), ("ABB", "ABBABB", "001001")],
)
def test_ends(cycle: str, events: str, ends: str) -> None:
    step_ends = StepEnds(tuple(cycle))
    assert "".join(str(int(step_ends.ends(event))) for event in events) == ends
