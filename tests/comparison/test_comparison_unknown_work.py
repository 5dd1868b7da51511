"""Work that is not counted: comparisons and budgets of FLOPs need the same unknown work on both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gate_reports import node, report, run, static

from profiler_kit.comparison.compare import compare
from profiler_kit.counting.totals import uncounted_ops
from profiler_kit.errors import NOT_COMPARABLE, OK
from profiler_kit.gate.budgets import parse_budget
from profiler_kit.gate.verdict import judge
from profiler_kit.pipeline.check import check_reports
from profiler_kit.records.counts import CountBound, OpRecord, TensorSpec, UncountedOp
from profiler_kit.records.report import Report
from profiler_kit.records.serde import dumps, loads_report

ATTENTION = UncountedOp(op="lib.attention", calls=2, paths=("attention",), possible_macs=10**6)
TINY = UncountedOp(op="lib.scale", calls=2, paths=("attention",), possible_macs=4)
OLDER = UncountedOp(op="lib.attention", calls=2, paths=("attention",))
BOUND = CountBound(op="higher_order.cond", kind="upper", reason="the predicate is unknown")
WORK = ("macs", "forward_flops", "backward_flops", "flops", "largest_layer")


def side(
    *uncounted: UncountedOp, macs: int = 1000, bounds: tuple[CountBound, ...] = (), step_ms: float | None = None
) -> Report:
    nodes = [node("linear", macs=macs, params=100), node("attention", macs=10)]
    runs = () if step_ms is None else (run(ms=step_ms),)
    return report(count=static(nodes, uncounted=uncounted, bounds=bounds), runs=runs)


def verdicts(a: Report, b: Report) -> dict[str, str]:
    return {row.metric: row.verdict for row in compare(a, b).metrics if row.config is None}


@pytest.mark.parametrize("unknown", [ATTENTION, OLDER])
def test_unknown_work_on_one_side_is_not_comparable(unknown: UncountedOp) -> None:
    a, b = side(macs=9000), side(unknown)
    found = verdicts(a, b)
    assert {found[metric] for metric in WORK if metric in found} == {"not_comparable"}
    assert found["params"] == "same"
    compared = compare(a, b)
    assert not compared.exact
    assert not any("the work of" in sentence for sentence in compared.sentences)


def test_the_same_unknown_work_on_both_sides_is_comparable_but_not_exact() -> None:
    compared = compare(side(ATTENTION, macs=2000), side(ATTENTION))
    assert compared.refusal("flops") == ""
    assert not compared.exact
    assert compare(side(), side()).exact


@pytest.mark.parametrize(
    "other", [replace(ATTENTION, calls=3), replace(ATTENTION, possible_macs=10**7), replace(ATTENTION, op="lib.other")]
)
def test_other_unknown_work_is_not_comparable(other: UncountedOp) -> None:
    assert compare(side(ATTENTION), side(other)).refusal("flops")


def test_ops_that_cannot_be_a_noticeable_part_do_not_matter() -> None:
    assert compare(side(macs=2000), side(TINY)).refusal("flops") == ""


def test_a_bound_on_one_side_is_not_comparable() -> None:
    assert compare(side(), side(bounds=(BOUND,))).refusal("flops")
    moved = replace(BOUND, where="net.py:3")
    assert compare(side(bounds=(BOUND,)), side(bounds=(moved,))).refusal("flops") == ""


def test_times_of_unknown_work_are_not_split() -> None:
    (known,) = compare(side(step_ms=10, macs=2000), side(step_ms=20)).times
    (unknown,) = compare(side(step_ms=10, macs=2000), side(ATTENTION, step_ms=20)).times
    assert known.work_ratio is not None
    assert (unknown.work_ratio, unknown.efficiency_ratio) == (None, None)
    assert unknown.time_ratio == known.time_ratio == 2


@pytest.mark.parametrize(
    ("budget", "base", "head", "outcome"),
    [
        ("flops=+10%", side(), side(ATTENTION), "not_comparable"),
        ("flops=+10%", side(ATTENTION), side(), "not_comparable"),
        ("flops=+10%", side(ATTENTION), side(ATTENTION), "ok"),
        ("flops=1G", side(), side(ATTENTION), "not_comparable"),
        ("flops=1K", side(), side(ATTENTION), "broken"),  # already the counted part is too much
        ("flops=1G", side(), side(bounds=(BOUND,)), "ok"),  # an upper bound is within the limit
        ("flops=1G", side(), side(bounds=(replace(BOUND, kind="lower"),)), "not_comparable"),
        ("flops=+10%", side(), side(TINY), "ok"),
        ("params=+10%", side(), side(ATTENTION), "ok"),
        ("flops@linear=+10%", side(), side(ATTENTION), "ok"),  # the op runs elsewhere
        ("flops@attention=+10%", side(), side(ATTENTION), "not_comparable"),
    ],
)
def test_budgets_are_not_kept_by_unknown_work(budget: str, base: Report, head: Report, outcome: str) -> None:
    assert judge(parse_budget(budget), base, head).outcome == outcome


def test_check_exits_with_the_status_of_nothing_comparable() -> None:
    budgets = [parse_budget("flops=+10%")]
    assert check_reports(side(), side(ATTENTION), budgets).exit_code == NOT_COMPARABLE
    assert check_reports(side(ATTENTION), side(ATTENTION), budgets).exit_code == OK


def test_the_limit_of_an_op_follows_from_its_operands() -> None:
    def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
        return TensorSpec(shape=shape, dtype=dtype, nbytes=0)

    def limit(op: str, *inputs: TensorSpec) -> int | None:
        (uncounted,) = uncounted_ops([OpRecord(op, "", "forward", inputs, (), None, 3)])
        return uncounted.possible_macs

    assert limit("lib.mm", spec(4, 8), spec(8, 2), spec(2)) == 3 * 32 * 16
    assert limit("lib.gram", spec(4, 8)) == 3 * 32 * 32
    assert limit("lib.lookup", spec(4, 8, dtype="int64")) == 0
    assert limit("lib.int_mm", spec(4, 8, dtype="int8"), spec(8, 2, dtype="int8")) == 3 * 32 * 16
    assert limit("higher_order.any", spec(2)) is None


def test_saved_reports_keep_bounds_and_limits() -> None:
    saved = side(ATTENTION, bounds=(BOUND,))
    loaded = loads_report(dumps(saved), "report.json")
    assert loaded.static == saved.static
