"""The verdict of a review: what becomes of each budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from profiler_kit.errors import BUDGET_BROKEN, NOT_COMPARABLE, OK
from profiler_kit.gate.budgets import TABLE, known_metric
from profiler_kit.records.comparison import Budget, BudgetRow, CheckResult, Comparison
from profiler_kit.records.metrics import StaticMetric, static_reason, value_of
from profiler_kit.records.report import Report
from profiler_kit.records.target import inputs_text
from profiler_kit.units import plural, text


def verdict(
    base: Report | None,
    head: Report,
    budgets: Sequence[Budget],
    comparison: Comparison | None,
    *,
    notes: Sequence[str] = (),
) -> CheckResult:
    """Every budget judged on `head`, relative ones against `base`, beside the `comparison` that explains the result.

    Without a base only absolute limits can be judged. `notes` are further ones.
    """
    first = [] if budgets else [f"No budgets are set: give --budget flops=+10% or a {TABLE} table in pyproject.toml."]
    if base is None:
        first.append("There is no base to compare with.")
    else:
        first += [f"Base: {note}" for note in base.notes]
    rows = tuple(judge(budget, base, head) for budget in budgets)
    return CheckResult(
        target=head.target.name,
        exit_code=_exit_code(rows, comparison),
        verdict=_headline(rows, comparison),
        budgets=rows,
        notes=(*first, *notes),
        comparison=comparison,
    )


def _exit_code(rows: Sequence[BudgetRow], comparison: Comparison | None) -> int:
    if any(row.outcome == "broken" for row in rows):
        return BUDGET_BROKEN
    if any(row.outcome == "not_comparable" and row.severity == "error" for row in rows):
        return NOT_COMPARABLE
    return NOT_COMPARABLE if comparison is None and not rows else OK


def _headline(rows: Sequence[BudgetRow], comparison: Comparison | None) -> str:
    """The verdict in a few words: ``2 of 5 budgets broken, please read``."""
    outcomes = Counter(row.outcome for row in rows)
    if outcomes["broken"]:
        return f"{outcomes['broken']} of {plural(len(rows), 'budget')} broken, please read"
    if outcomes["not_comparable"]:
        return f"{outcomes['not_comparable']} of {plural(len(rows), 'budget')} could not be judged"
    if not rows:
        return "no budgets set" if comparison is not None else "nothing comparable"
    kept = "1 budget kept" if len(rows) == 1 else f"all {len(rows)} budgets kept"
    return f"{plural(outcomes['warned'], 'budget')} exceeded, as a warning" if outcomes["warned"] else kept


def judge(budget: Budget, base: Report | None, head: Report) -> BudgetRow:
    """What becomes of `budget`: ok, broken, warned, or not comparable and why."""
    one = known_metric(budget.metric, budget.where)
    before = value_of(base, one) if base is not None else None
    after = value_of(head, one)
    reason = _refusal(budget, one, base, head)
    allowed = None if reason else _allowed(budget, before)
    row = BudgetRow(
        metric=one.key,
        title=one.title,
        unit=one.unit,
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
    return replace(row, outcome="broken" if budget.severity == "error" else "warned", reason=_over(row, allowed, after))


def _over(row: BudgetRow, allowed: int, after: int) -> str:
    if allowed == 0:
        return f"{text(after, row.unit)}, and none is allowed"
    over = text((after / allowed - 1) * 100, "percent")
    return f"{text(after, row.unit)} is {over} above the {text(allowed, row.unit)} allowed"


def _allowed(budget: Budget, before: int | None) -> int | None:
    if budget.limit is not None:
        return budget.limit
    if before is None:
        return None
    if budget.increase is not None:  # exact: as a float, 10 % of 10 would allow less than 1
        return math.floor(before * (1 + Fraction(str(budget.increase))))
    return before + (budget.increase_by or 0)


def _refusal(budget: Budget, one: StaticMetric, base: Report | None, head: Report) -> str:
    """Why the budget can't be judged; empty where it can. An absolute limit needs no base, and a guessed shape never gates."""
    if value_of(head, one) is None:
        return "not counted"
    if one.depends_on_inputs and head.target.inputs_from == "guess":
        return "the input shape was guessed: give it with -i, or define example_inputs"
    if budget.limit is not None:
        return ""
    if base is None:
        return "there is no base"
    if one.depends_on_inputs and base.target.inputs_from == "guess":
        return "the input shape of the base was guessed: give both sides the same with -i"
    if one.depends_on_inputs and _shapes(base) != _shapes(head):
        before, now = inputs_text(base.target.inputs), inputs_text(head.target.inputs)
        return f"the inputs differ ({before}; now {now}): give both sides the same with -i"
    return static_reason(base, head, one)


def _shapes(report: Report) -> list[tuple[tuple[int, ...], str]]:
    """The shapes alone: another name for an input is no other work."""
    return [(one.shape, one.dtype) for one in report.target.inputs]
