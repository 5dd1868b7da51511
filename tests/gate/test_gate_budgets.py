from __future__ import annotations

from pathlib import Path

import pytest
from gate_reports import node, report, static
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.errors import BUDGET_BROKEN, NOT_COMPARABLE, OK, UsageError
from profiler_kit.gate.budgets import parse_budget
from profiler_kit.gate.settings import read_settings
from profiler_kit.gate.verdict import judge
from profiler_kit.pipeline.check import check_reports
from profiler_kit.records.check import Budget, BudgetRow
from profiler_kit.records.counts import UncountedOp
from profiler_kit.records.metrics import METRICS
from profiler_kit.records.report import Report
from profiler_kit.records.target import InputInfo


def net(macs: int = 1000, **options: object) -> Report:
    return report([node("conv", macs=macs, params=1000, saved_bytes=4096)], **options)  # type: ignore[arg-type]


def judged(budget: str, base: Report | None, head: Report) -> BudgetRow:
    return judge(parse_budget(budget), base, head)


def write(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("budget", "increase", "increase_by", "limit"),
    [
        ("flops=+10%", 0.1, None, None),
        ("flops=+ 2.5 %", 0.025, None, None),
        ("flops=+0%", 0.0, None, None),
        ("params=26M", None, None, 26_000_000),
        ("params=+1K", None, 1000, None),
        ("peak=3GiB", None, None, 3 * 2**30),
        ("saved=+64MiB", None, 64 * 2**20, None),
        ("uncounted=0", None, None, 0),
    ],
)
def test_limits_as_they_are_written(
    budget: str, increase: float | None, increase_by: int | None, limit: int | None
) -> None:
    found = parse_budget(budget)
    assert (found.increase, found.increase_by, found.limit) == (increase, increase_by, limit)
    assert found.severity == "error"


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("flops", "METRIC=LIMIT"),
        ("=+10%", "METRIC=LIMIT"),
        ("flops=", "METRIC=LIMIT"),
        ("flop=+10%", "nearest: flops"),
        ("color=3", "forward_flops"),
        ("flops=10%", "write +10%"),
        ("flops=-10%", "not a limit for flops"),
        ("flops=many", "+10%"),
        ("peak=3furlongs", "3GiB"),
        ("params=26MiB", "not a limit for params"),
        ("flops=nan", "not a limit"),
        ("step_time=10ms", "measured"),
        ("device_time=1ms", "nearest: device_step"),
    ],
)
def test_bad_budgets_name_the_place_and_the_way_out(budget: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_budget(budget)
    assert said in str(caught.value)
    assert caught.value.where == f"--budget {budget}"
    assert caught.value.hint


def test_the_table_the_target_and_the_command_line_overrule_in_this_order(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        [tool.profiler-kit.budgets]
        flops = "+10%"
        params = "26M"
        peak = { limit = "3GiB", severity = "warn" }
        saved = { increase = "5%" }
        macs = { increase = "5%", severity = "off" }
        uncounted = 0
        [tool.profiler-kit.budgets.net]
        params = "1M"
        uncounted = "off"
        [tool.profiler-kit.budgets.other]
        flops = "+99%"
        """,
    )
    found = {one.metric: one for one in read_settings(tmp_path).budgets("net", [parse_budget("saved=+7%")])}
    assert {key: one.written for key, one in found.items()} == {
        "params": "1M",
        "flops": "+10%",
        "saved": "+7%",
        "peak": "3GiB",
    }
    assert found["peak"].severity == "warn"
    assert found["params"].where == "pyproject.toml: [tool.profiler-kit.budgets.net] params"
    assert found["saved"].where == "--budget saved=+7%"
    order = [one.key for one in METRICS]
    assert list(found) == sorted(found, key=order.index)


def test_the_nearest_pyproject_counts_and_the_repository_ends_the_search(tmp_path: Path) -> None:
    write(tmp_path, '[tool.profiler-kit.budgets]\nflops = "+1%"')
    inner = tmp_path / "repo" / "models"
    inner.mkdir(parents=True)
    found = read_settings(inner).budgets("net")
    assert [one.where for one in found] == ["../../pyproject.toml: [tool.profiler-kit.budgets] flops"]
    (tmp_path / "repo" / ".git").mkdir()
    assert read_settings(inner).budgets("net") == ()
    write(tmp_path / "repo", '[tool.other]\nx = 1\n[tool.profiler-kit.budgets]\nparams = "1M"')
    assert [one.metric for one in read_settings(inner).budgets("net")] == ["params"]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[tool.profiler-kit.budgets]\nflop = '+10%'", "nearest: flops"),
        ("[tool.profiler-kit.budgets]\nflop = { increase = '10%' }", "nearest: flops"),
        ("[tool.profiler-kit.budgets]\nstep_time = '10ms'", "measured"),
        ("[tool.profiler-kit.budgets]\nflops = true", "not a limit"),
        ("[tool.profiler-kit.budgets]\nflops = 1.5", "not a limit"),
        ("[tool.profiler-kit.budgets]\nflops = ['+10%']", "not a limit"),
        ("[tool.profiler-kit.budgets]\nflops = { increase = '10%', limit = '3G' }", "both"),
        ("[tool.profiler-kit.budgets]\nflops = { severity = 'warn' }", "neither"),
        ("[tool.profiler-kit.budgets]\nflops = { limit = '+10%' }", "increase = "),
        ("[tool.profiler-kit.budgets]\nflops = { increase = '10%', severity = 'loud' }", "error, warn, off"),
        ("[tool.profiler-kit.budgets]\nflops = { increase = '10%', color = 1 }", "color"),
        ("[tool.profiler-kit.budgets.someone_else]\nflop = '+10%'", "someone_else"),
        ("[tool.profiler-kit]\nbudgets = 3", "not a table"),
        ("[tool.profiler-kit", "TOML"),
    ],
)
def test_a_bad_table_names_file_and_key(tmp_path: Path, table: str, said: str) -> None:
    write(tmp_path, table)
    with pytest.raises(UsageError) as caught:
        read_settings(tmp_path).budgets("net")
    assert said in str(caught.value)
    assert str(caught.value.where).startswith("pyproject.toml")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("budget", "macs", "outcome"),
    [
        ("flops=+10%", 1100, "ok"),  # exactly at the limit keeps it
        ("flops=+10%", 1101, "broken"),
        ("flops=+10%", 10, "ok"),  # a fall never breaks
        ("flops=+0%", 1000, "ok"),
        ("flops=+0%", 1001, "broken"),
        ("flops=+600", 1100, "ok"),
        ("flops=+599", 1100, "broken"),
        ("flops=6600", 1100, "ok"),
        ("flops=6599", 1100, "broken"),
        ("macs=1K", 1000, "ok"),
        ("macs=999", 1000, "broken"),
    ],
)
def test_outcomes(budget: str, macs: int, outcome: str) -> None:
    row = judged(budget, net(1000), net(macs))
    assert row.outcome == outcome
    assert bool(row.reason) == (outcome == "broken")


def test_a_warning_never_breaks() -> None:
    budget = Budget(metric="flops", written="+1%", where="x", severity="warn", increase=0.01)
    result = check_reports(net(1000), net(2000), [budget])
    assert (result.budgets[0].outcome, result.exit_code) == ("warned", OK)


def test_a_base_of_zero_allows_no_relative_increase() -> None:
    assert judged("flops=+10%", net(0), net(0)).outcome == "ok"
    row = judged("flops=+10%", net(0), net(1))
    assert (row.outcome, row.change, row.allowed) == ("broken", None, 0)
    assert judged("flops=+100", net(0), net(1)).outcome == "ok"


def test_uncounted_ops_are_a_metric() -> None:
    blind = static([node("conv", macs=1)], uncounted=(UncountedOp(op="aten.fft", calls=2, paths=("conv",)),))
    row = judged("uncounted=0", net(), report(count=blind))
    assert (row.head, row.outcome) == (2, "broken")
    assert "none is allowed" in row.reason


def test_without_a_base_only_absolute_limits_are_judged() -> None:
    assert judged("params=26M", None, net()).outcome == "ok"
    assert judged("params=+1%", None, net()).outcome == "not_comparable"
    assert check_reports(None, net(), [parse_budget("params=26M")]).exit_code == OK
    assert check_reports(None, net(), [parse_budget("params=10")]).exit_code == BUDGET_BROKEN
    assert check_reports(None, net(), [parse_budget("params=+1%")]).exit_code == NOT_COMPARABLE
    assert check_reports(None, net(), []).exit_code == NOT_COMPARABLE


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"inputs_from": "guess"}, "guessed"),
        ({"mode": "infer"}, "train"),
        ({"inputs": (InputInfo(name="x", shape=(4, 3, 16, 16), dtype="float32"),)}, "different inputs"),
    ],
)
def test_what_does_not_compare_is_never_passed(options: dict[str, object], said: str) -> None:
    head = net(1, **options)
    assert said in judged("flops=+10%", net(), head).reason
    result = check_reports(net(), head, [parse_budget("flops=+10%"), parse_budget("params=+10%")])
    assert [row.outcome for row in result.budgets] == ["not_comparable", "ok"]
    assert result.exit_code == NOT_COMPARABLE


def test_a_guess_at_the_base_gates_nothing_relative() -> None:
    guessed = net(inputs_from="guess")
    assert "base was guessed" in judged("flops=+10%", guessed, net()).reason
    assert judged("flops=1G", guessed, net()).outcome == "ok"


def test_another_name_for_an_input_is_no_other_input() -> None:
    renamed = net(inputs=(InputInfo(name="image", shape=(8, 3, 16, 16), dtype="float32"),))
    assert judged("flops=+0%", net(), renamed).outcome == "ok"


def test_a_broken_budget_outweighs_one_that_cannot_be_judged() -> None:
    head = net(10_000, mode="infer")
    result = check_reports(net(), head, [parse_budget("flops=+10%"), parse_budget("macs=1")])
    assert [row.outcome for row in result.budgets] == ["not_comparable", "broken"]
    assert result.exit_code == BUDGET_BROKEN


def test_a_side_that_was_not_counted() -> None:
    result = check_reports(report(None), net(), [parse_budget("flops=+10%")])
    assert result.comparison is None
    assert result.exit_code == NOT_COMPARABLE
    assert check_reports(net(), report(None), [parse_budget("flops=1G")]).budgets[0].outcome == "not_comparable"


def test_no_budgets_still_compare() -> None:
    result = check_reports(net(), net(2000), [])
    assert result.exit_code == OK
    assert result.comparison is not None
    assert any("No budgets" in note for note in result.notes)


@given(st.integers(0, 10**18), st.integers(0, 10**18), st.integers(0, 1000))
def test_a_relative_limit_is_exact(before: int, after: int, tenths: int) -> None:
    budget = parse_budget(f"macs=+{tenths / 10}%")
    outcome = judge(budget, net(before), net(after)).outcome
    assert (outcome == "ok") == (after * 1000 <= before * (1000 + tenths))
