"""The verdict of a check: the outcome of each budget, and the exit code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from profiler_kit.errors import BUDGET_BROKEN, NOT_COMPARABLE, OK
from profiler_kit.gate.budgets import TABLE, find_metric
from profiler_kit.records.comparison import Budget, BudgetRow, CheckResult, Comparison
from profiler_kit.records.metrics import StaticMetric, reason_not_comparable, value_of
from profiler_kit.records.report import Report
from profiler_kit.records.target import inputs_text
from profiler_kit.units import plural, text


def judge_budgets(
    base: Report | None,
    head: Report,
    budgets: Sequence[Budget],
    comparison: Comparison | None,
    *,
    notes: Sequence[str] = (),
) -> CheckResult:
    """Judge every budget on `head`, relative ones against `base`. `comparison` explains the result.

    Without a base only absolute limits can be judged. `notes` are appended.
    """
    base_notes = (
        [] if budgets else [f"No budgets are set: use --budget flops=+10% or a {TABLE} table in pyproject.toml."]
    )
    if base is None:
        base_notes.append("Base: none, so only absolute limits are judged.")
    else:
        base_notes += [f"Base: {note}" for note in base.notes]
    rows = tuple(judge(budget, base, head) for budget in budgets)
    return CheckResult(
        target=head.target.name,
        exit_code=_exit_code(rows, comparison),
        verdict=_headline(rows, comparison),
        budgets=rows,
        notes=(*base_notes, *notes),
        comparison=comparison,
    )


def _exit_code(rows: Sequence[BudgetRow], comparison: Comparison | None) -> int:
    if any(row.outcome == "broken" for row in rows):
        return BUDGET_BROKEN
    if any(row.outcome == "not_comparable" and row.severity == "error" for row in rows):
        return NOT_COMPARABLE
    return NOT_COMPARABLE if comparison is None and not rows else OK


def _headline(rows: Sequence[BudgetRow], comparison: Comparison | None) -> str:
    """The verdict in a few words: ``2 of 5 budgets broken``."""
    outcomes = Counter(row.outcome for row in rows)
    if outcomes["broken"]:
        return f"{outcomes['broken']} of {plural(len(rows), 'budget')} broken"
    if outcomes["not_comparable"]:
        return f"{outcomes['not_comparable']} of {plural(len(rows), 'budget')} could not be judged"
    if not rows:
        return "no budgets set" if comparison is not None else "nothing comparable"
    if outcomes["warned"]:
        return f"{plural(outcomes['warned'], 'budget')} exceeded (warning)"
    return "1 budget kept" if len(rows) == 1 else f"all {len(rows)} budgets kept"


def judge(budget: Budget, base: Report | None, head: Report) -> BudgetRow:
    """The outcome of `budget`: ok, broken, warned, or not comparable with its reason."""
    metric = find_metric(budget.metric, budget.where)
    before = value_of(base, metric) if base is not None else None
    after = value_of(head, metric)
    reason = _refusal(budget, metric, base, head)
    allowed = None if reason else _allowed(budget, before)
    row = BudgetRow(
        metric=metric.key,
        title=metric.title,
        unit=metric.unit,
        base=before,
        head=after,
        change=after / before - 1 if before and after is not None else None,
        allowed=allowed,
        limit=budget.written,
        severity=budget.severity,
        outcome="not_comparable",
        reason=reason,
        where=budget.where,
    )
    if reason or allowed is None or after is None:
        return row
    if after <= allowed:
        return replace(row, outcome="ok")
    return replace(
        row, outcome="broken" if budget.severity == "error" else "warned", reason=_excess(row, allowed, after)
    )


def _excess(row: BudgetRow, allowed: int, after: int) -> str:
    if allowed == 0:
        return f"{text(after, row.unit)}; none is allowed"
    excess = text((after / allowed - 1) * 100, "percent")
    return f"{text(after, row.unit)} is {excess} above the {text(allowed, row.unit)} allowed"


def _allowed(budget: Budget, before: int | None) -> int | None:
    if budget.limit is not None:
        return budget.limit
    if before is None:
        return None
    if budget.increase is not None:  # exact: with floats, 10 % of 10 would be less than 1
        return math.floor(before * (1 + Fraction(str(budget.increase))))
    return before + (budget.increase_by or 0)


def _refusal(budget: Budget, metric: StaticMetric, base: Report | None, head: Report) -> str:
    """Why the budget cannot be judged; empty if it can. Absolute limits need no base. Guessed input shapes are never judged."""
    if value_of(head, metric) is None:
        return "not counted"
    if metric.depends_on_inputs and head.target.inputs_are_guessed:
        return "the input shape was guessed: give it with -i, or define example_inputs"
    if budget.limit is not None:
        return ""
    if base is None:
        return "no base to compare with"
    if metric.depends_on_inputs and base.target.inputs_are_guessed:
        return "the input shape of the base was guessed: give both sides the same shape with -i"
    if metric.depends_on_inputs and _shapes(base) != _shapes(head):
        base_inputs, head_inputs = inputs_text(base.target.inputs), inputs_text(head.target.inputs)
        return f"the inputs differ (base: {base_inputs}; now: {head_inputs}): give both sides the same shapes with -i"
    return reason_not_comparable(base, head, metric)


def _shapes(report: Report) -> list[tuple[tuple[int, ...], str]]:
    """Shapes and dtypes without names: renaming an input does not change the work."""
    return [(tensor.shape, tensor.dtype) for tensor in report.target.inputs]
