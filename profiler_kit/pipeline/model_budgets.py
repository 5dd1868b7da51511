"""Budgets on a report that the caller has, such as in a test: read, judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from profiler_kit.errors import UsageError
from profiler_kit.gate.budgets import merge_budgets, parse_table_budget
from profiler_kit.gate.metrics import gate_metric
from profiler_kit.pipeline.check import check_reports
from profiler_kit.records.check import Budget, CheckResult
from profiler_kit.records.report import Report
from profiler_kit.records.serde import read_report


def read_budgets(tables: Sequence[Mapping[str, object]], *, where: str, has_baseline: bool) -> tuple[Budget, ...]:
    """The budgets of `tables`, written as in pyproject.toml. A later table replaces the same metrics of earlier ones.

    Raises:
        UsageError: a metric or limit is invalid, or needs a baseline and there is none.
    """
    budgets = merge_budgets(
        *([parse_table_budget(name, value, f"{where} {name}") for name, value in table.items()] for table in tables)
    )
    for budget in budgets:
        metric = gate_metric(budget.metric)
        assert metric is not None
        if metric.is_measured:
            raise UsageError(
                "a counted report has no measured time",
                where=budget.where,
                hint="limit it in check --time",
            )
        if not has_baseline and (budget.limit is None or metric.needs_base):
            raise UsageError(
                f"{budget.written} needs a baseline",
                where=budget.where,
                hint='write an absolute limit, or baseline="report.json"',
            )
    return budgets


def judge_report(report: Report, budgets: Sequence[Budget], baseline: Path | None) -> CheckResult:
    """The verdict on `report`. `baseline`: a saved report for relative limits. Raises ReportError."""
    return check_reports(None if baseline is None else read_report(baseline), report, budgets)
