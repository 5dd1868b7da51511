"""The columns of budgets and their outcomes."""

from __future__ import annotations

from typing import Final

from profiler_kit.records.check import BudgetOutcome, BudgetRow
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.units import text

OUTCOMES: Final[dict[BudgetOutcome, str]] = {
    "ok": "ok",
    "broken": "BROKEN",
    "warned": "warning",
    "not_comparable": "not comparable",
}

# fmt: off
# ruff: noqa: E501 - one column, one line
BUDGET_COLUMNS: tuple[Column[BudgetRow], ...] = (
    Column("budget", "Budget", "text", lambda r: r.title, "the limited metric", place="page"),
    Column("metric", "metric", "text", lambda r: r.metric, "the limited metric, as `--budget` names it", place="data"),
    Column("unit", "unit", "text", lambda r: r.unit, "the unit of base, head and allowed", place="data"),
    Column("base_text", "Base", "text", lambda r: text(r.base, r.unit), "value before the change", place="page", rank=2),
    Column("base", "base", "count", lambda r: r.base, "value before the change, in the row's unit", place="data"),
    Column("head_text", "Now", "text", lambda r: text(r.head, r.unit), "value with the change", place="page"),
    Column("head", "head", "count", lambda r: r.head, "value with the change, in the row's unit", place="data"),
    Column("change_text", "Change", "text", lambda r: None if r.change is None else f"{r.change * 100:+.1f} %", "relative change from base to now", place="page"),
    Column("change", "change", "fraction", lambda r: r.change, "head divided by base, minus 1", place="data"),
    Column("limit", "Limit", "text", lambda r: r.limit, "the limit as written in the configuration or on the command line", rank=1),
    Column("allowed", "allowed", "count", lambda r: r.allowed, "the largest value within the budget, in the row's unit", place="data"),
    Column("severity", "severity", "text", lambda r: r.severity, "error: a broken budget fails the check; warn: it does not", place="data"),
    Column("outcome", "outcome", "text", lambda r: r.outcome, "ok, broken, warned or not_comparable", place="data"),
    Column("verdict", "Verdict", "text", lambda r: OUTCOMES[r.outcome], "ok, BROKEN, warning, or not comparable", place="page"),
    Column("reason", "reason", "text", lambda r: r.reason, "reason why the budget is broken or not comparable", place="data"),
    Column("where", "where", "text", lambda r: r.where, "file or option that defines the budget", place="data"),
)

TABLES = (
    ColumnTable("budgets", BUDGET_COLUMNS, "`check`: one row per budget. `check -o FILE.csv` writes this table."),
)
# fmt: on
