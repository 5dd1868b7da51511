"""Tests of the workspace benchmark: its sample, and its score of figures that are known."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from scripts.bench.workspace import KINDS, MASKS, format_scores, points_of, sampled_cases


def test_a_sample_is_the_same_for_a_seed_and_covers_all_strata() -> None:
    cases = [*islice(sampled_cases(1), 300)]
    assert cases == [*islice(sampled_cases(1), 300)]
    assert cases != [*islice(sampled_cases(2), 300)]
    kinds = {kind for case in cases for kind in case.key("forward", ("kind",))}
    assert kinds == {"dense", "grouped", "depthwise", "transposed dense"}
    assert {len(case.size) for case in cases} == {1, 2, 3}
    assert any(case.is_tuned for case in cases)
    assert len(KINDS) == 16


def test_figures_inside_and_above_the_interval_are_counted() -> None:
    def taken(workspace_bytes: int) -> Callable[[Callable[[], Any]], int]:
        return lambda call: workspace_bytes if call() is not None else 0

    case = next(
        case for case in sampled_cases(1) if case.key("", ("kind", "dims", "dtype")) == ("dense", "2-d", "half")
    )
    above = [*points_of(case, "meta", taken(1 << 40))]
    assert [point.direction for point in above] == list(MASKS)
    assert all(point.is_above and not point.is_near for point in above)
    inside = next(points_of(case, "meta", taken(above[0].rule.likely)))
    assert inside.is_near
    assert (inside.is_above, inside.is_below) == (False, False)
    lines = format_scores([*above, inside], ("pass",), worst=1).splitlines()
    assert lines[-2].split()[:-1] == ["all", "4", "25.0", "3", "0", "25.0"]
    assert str(1 << 40) in lines[-1]


def test_a_pass_that_the_libraries_refuse_is_left_out() -> None:
    def refuse(_: Callable[[], Any]) -> int:
        raise RuntimeError("no engine")

    assert not [*points_of(next(sampled_cases(1)), "meta", refuse)]
