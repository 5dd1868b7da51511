"""The pytest plugin: budgets of a model as a marker of a test, and the report of a model as a fixture.

pytest loads this file at every start, so it imports nothing of the package before a test needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from profiler_kit.records.check import Budget
    from profiler_kit.records.report import Report

MARKER: Final = "model_budget"
BASELINE: Final = "baseline"
_EXAMPLE: Final = f'hint: @pytest.mark.{MARKER}(flops="4.1G")'
_BUDGETS: Final = pytest.StashKey["_TestBudgets"]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f'{MARKER}(**limits, baseline=None): limits on the models of the test, such as flops="4.1G", params="26M", '
        'peak="3GiB"; the fixture model_report counts a model and judges it',
    )


class _TestBudgets:
    """The budgets of a test, and the number of reports judged by them."""

    def __init__(self, budgets: tuple[Budget, ...], baseline: Path | None) -> None:
        self.budgets = budgets
        self.baseline = baseline
        self.judged = 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Read the budgets of a marked test. An invalid one is an error of the test, so that it never passes."""
    markers = list(item.iter_markers(MARKER))
    if markers:
        item.stash[_BUDGETS] = _read_markers(markers, item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a marked test that judged no model: its budgets would hold whatever the model is."""
    result = yield
    budgets = item.stash.get(_BUDGETS, None)
    if budgets is not None and budgets.budgets and not budgets.judged:
        pytest.fail(
            f"the test has the marker {MARKER} and counts no model\nhint: model_report(model, *inputs)", pytrace=False
        )
    return result


@pytest.fixture
def model_report(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """Count a model: ``model_report(model, *inputs, **options)`` returns its `Report`.

    The arguments are those of `profiler_kit.count`, so a TARGET text is possible too. The budgets of the test's marker
    ``model_budget`` are judged on each report; a broken one fails the test and shows the layers with the largest part of it.
    """

    def make_report(target: Any, *inputs: Any, **options: Any) -> Report:
        __tracebackhide__ = True
        from profiler_kit.errors import KitError
        from profiler_kit.pipeline.count import count

        try:
            report = count(target, *inputs, **options)
            problem = _judge(report, request.node.stash.get(_BUDGETS, None))
        except KitError as error:
            problem = str(error)
        if problem:  # outside of the except clause, so that the failure is not shown as a chain of exceptions
            pytest.fail(problem, pytrace=False)
        return report

    return make_report


def _read_markers(markers: list[pytest.Mark], item: pytest.Item) -> _TestBudgets:
    """The budgets of a test from its markers, the nearest first. An invalid one fails the test."""
    from profiler_kit.errors import KitError
    from profiler_kit.pipeline.budget_files import read_budgets

    tables: list[dict[str, object]] = []
    for marker in reversed(markers):
        for argument in (*marker.args, marker.kwargs):
            if not isinstance(argument, Mapping):
                pytest.fail(f"{MARKER}: {argument!r} is not a table\n{_EXAMPLE}", pytrace=False)
            tables.append(dict(argument))
    baselines = [table.pop(BASELINE) for table in tables if BASELINE in table]
    baseline = item.path.parent / str(baselines[-1]) if baselines and baselines[-1] is not None else None
    if not any(tables):
        pytest.fail(f"the marker {MARKER} has no limit\n{_EXAMPLE}", pytrace=False)
    try:
        return _TestBudgets(
            read_budgets(tables, where=f"@pytest.mark.{MARKER}", has_baseline=baseline is not None), baseline
        )
    except KitError as error:
        problem = str(error)
    pytest.fail(problem, pytrace=False)


def _judge(report: Report, budgets: _TestBudgets | None) -> str:
    """Why `report` breaks `budgets`; empty if it keeps them."""
    if budgets is None:
        return ""
    from profiler_kit.display.records import summary
    from profiler_kit.pipeline.budget_files import judge_report

    result = judge_report(report, budgets.budgets, budgets.baseline)
    budgets.judged += 1
    return summary(result) if result.exit_code else ""
