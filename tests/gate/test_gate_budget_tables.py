"""Limits that `init` and `check --accept` write."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.errors import UsageError
from profiler_kit.gate.budget_tables import limit_value, raised_options, with_accepted
from profiler_kit.gate.budgets import parse_budget
from profiler_kit.gate.settings import parse_settings
from profiler_kit.gate.toml_text import parse_toml
from profiler_kit.records.check import BudgetRow, CheckResult
from profiler_kit.units import Unit

START = "[tool.profiler-kit."


@given(st.integers(0, 10**18), st.sampled_from(["params", "saved", "largest_layer"]))
def test_a_limit_allows_its_value_and_hardly_more(value: int, metric: str) -> None:
    value = value % 10_001 if metric == "largest_layer" else value
    unit: dict[str, Unit] = {"params": "count", "saved": "bytes", "largest_layer": "basis_points"}
    limit = parse_budget(f"{metric}={limit_value(value, unit[metric])}").limit
    assert limit is not None
    assert value <= limit <= value * 1.002 + 10


def result(
    metric: str, head: int, base: int, module: str = "", outcome: Literal["broken", "warned"] = "broken"
) -> CheckResult:
    row = BudgetRow(
        metric=metric, title=metric, unit="count", base=base, head=head, change=None, allowed=None, limit="", severity="error",
        outcome=outcome, reason="", where="", module=module,
    )  # fmt: skip
    return CheckResult(target="Net", name="net", exit_code=1, verdict="", budgets=(row,))


def accepted(content: str, check: CheckResult, reason: str = "wider") -> str:
    budgets = parse_settings(parse_toml(content, "x"), "x").budgets("net")
    return with_accepted(content, check, budgets, reason, "x")[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f'{START}budgets.net]\nparams = "20K"\n', 'params = "26.5K"  # accepted 26,500 (base 20,000): wider\n'),
        (
            f'{START}budgets.net]\nparams = "+10%"\n',
            'params = {increase = "10%", accepted = "26.5K"}  # accepted 26,500 (base 20,000): wider\n',
        ),
        (
            f'{START}budgets.net.params]\nlimit = "20K"\n',
            'limit = "26.5K"  # accepted 26,500 (base 20,000): wider\n',
        ),
        (
            f'{START}budgets.net.params]\nincrease = "1%"\n',
            'increase = "1%"\naccepted = "26.5K"  # accepted 26,500 (base 20,000): wider\n',
        ),
        (
            f'{START}budgets]\nparams = "20K"\n',
            f'params = "20K"\n\n{START}budgets.net]\nparams = "26.5K"  # accepted 26,500 (base 20,000): wider\n',
        ),
        (
            f'{START}budgets]\nparams = "+1%"\n{START}budgets.net]\nflops = 1\n',
            f'params = "+1%"\n{START}budgets.net]\n'
            'flops = 1\nparams = {increase = "1%", accepted = "26.5K"}  # accepted 26,500 (base 20,000): wider\n',
        ),
    ],
)
def test_the_limit_of_the_target_is_raised(before: str, after: str) -> None:
    new = accepted(before, result("params", 26_500, 20_000))
    assert new == before.partition("\n")[0] + "\n" + after
    (budget,) = [each for each in parse_settings(parse_toml(new, "x"), "x").budgets("net") if each.metric == "params"]
    assert (budget.limit or budget.accepted) == 26_500


def test_a_part_of_the_model_and_a_second_acceptance() -> None:
    before = f'{START}budgets.net]\n"params@stem.*" = {{ increase = "5%", severity = "error" }} # small\n'
    once = accepted(before, result("params", 26_500, 20_000, "stem.*"))
    twice = accepted(once, result("params", 31_000, 26_500, "stem.*"), "wider again")
    assert (
        '{increase = "5%", severity = "error", accepted = "31K"}  # accepted 31,000 (base 26,500): wider again' in twice
    )


def test_a_warning_needs_no_acceptance() -> None:
    before = f'{START}budgets.net]\nparams = {{ limit = "20K", severity = "warn" }}\n'
    assert accepted(before, result("params", 26_500, 20_000, outcome="warned")) == before


def test_a_limit_of_the_command_line_is_raised_there() -> None:
    check = result("params", 3, 2)
    (row,) = check.budgets
    check = replace(check, budgets=(replace(row, where="--budget params=2"),))
    assert with_accepted("", check, [parse_budget("params=2")], "why", "x") == ("", [])
    options = ["flops=+10%", "params=2"]
    assert raised_options(options, False, check.budgets) == (["flops=+10%", "params=3"], False)
    refused = (replace(row, metric="uncounted", where="--strict"),)
    assert raised_options(options, True, refused) == ([*options, "uncounted=3"], False)


@pytest.mark.parametrize("value", ['{ limit = "1K", accepted = "2K" }', '{ increase = "1%", accepted = "+2K" }'])
def test_accepted_is_an_absolute_value_next_to_an_increase(value: str) -> None:
    with pytest.raises(UsageError):
        parse_settings(parse_toml(f"{START}budgets.net]\nparams = {value}\n", "x"), "x")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("net.py:Net", "sub/net.py:Net"),
        ("../models/net.py", "models/net.py"),
        ("package.net:Net", "package.net:Net"),
        ("timm:resnet18", "timm:resnet18"),
    ],
)
def test_paths_of_targets_are_relative_to_their_file(target: str, expected: str) -> None:
    content = f'[tool.profiler-kit.targets.net]\ntarget = "{target}"\nbase_target = "{target}"\n'
    settings = parse_settings(parse_toml(content, "x"), "sub/pyproject.toml").targets["net"]
    assert (settings.target, settings.base_target) == (expected, expected)
