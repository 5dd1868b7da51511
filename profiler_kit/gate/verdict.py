"""The verdict of a check: the outcome of each budget, and the exit code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from profiler_kit.errors import BUDGET_BROKEN, NOT_COMPARABLE, OK, TARGET_FAILED, KitError
from profiler_kit.gate.metrics import GateMetric, gate_metric, matches_pattern, measured_value, metric_value
from profiler_kit.gate.parts import largest_parts
from profiler_kit.gate.settings import TABLE, Policy
from profiler_kit.records.check import (
    Budget,
    BudgetOutcome,
    BudgetRow,
    CheckResult,
    CheckResults,
    CheckSide,
    StepTimeCheck,
)
from profiler_kit.records.comparison import Comparison
from profiler_kit.records.metrics import METRICS, reason_not_comparable, reason_of_inputs
from profiler_kit.records.report import Report
from profiler_kit.records.uncounted import reason_of_lower_bound
from profiler_kit.units import plural, text

PEAK: Final = next(metric for metric in METRICS if metric.key == "peak")
FLOPS: Final = next(metric for metric in METRICS if metric.key == "flops")
ADD_TIME: Final = "add --time"
GRAVITY: Final = (BUDGET_BROKEN, TARGET_FAILED, NOT_COMPARABLE, OK)  # of exit codes, the gravest first


def judge_budgets(
    base: Report | None,
    head: Report,
    budgets: Sequence[Budget],
    comparison: Comparison | None,
    *,
    notes: Sequence[str] = (),
    time: StepTimeCheck | None = None,
    untimed: str = ADD_TIME,
) -> CheckResult:
    """Judge every budget on `head`, relative ones against `base`. `comparison` explains the result.

    Without a base only absolute limits can be judged. `notes` are appended. `untimed`: why `time` is None; empty if both sides
    are the same files, whose step cannot differ.
    """
    base_notes = (
        [] if budgets else [f"No budgets are set: use --budget flops=+10% or a {TABLE} table in pyproject.toml."]
    )
    if base is None:
        base_notes.append("Base: none, so only absolute limits are judged.")
    else:
        base_notes += [f"Base: {note}" for note in base.notes]
    rows = tuple(judge(budget, base, head, comparison, time, untimed) for budget in budgets)
    return CheckResult(
        target=head.target.name,
        exit_code=_exit_code(rows, comparison),
        verdict=_headline(rows, comparison),
        budgets=rows,
        notes=(*base_notes, *notes),
        comparison=comparison,
        spec=head.target.spec,
        base=base.revision if base is not None else "",
        posts=comparison is None or _is_changed(comparison) or any(row.outcome != "ok" for row in rows),
        time=time,
    )


def judge_new(head: Report, budgets: Sequence[Budget], policy: Policy, *, reason: str) -> CheckResult:
    """The result for a target that the base does not have: absolute limits are judged, and relative ones do not apply."""
    absolute = [budget for budget in budgets if budget.limit is not None and not _metric(budget).needs_base]
    rows = tuple(judge(budget, None, head) for budget in absolute)
    left_out = len(budgets) - len(rows)
    notes = [reason]
    if left_out:
        notes.append(
            f"{plural(left_out, 'budget')} relative to the base {'does' if left_out == 1 else 'do'} not apply."
        )
    broken = any(row.outcome == "broken" for row in rows)
    unjudged = any(row.outcome == "not_comparable" and row.severity == "error" for row in rows)
    refused = policy == "error"
    headline = f"new target: {_headline(rows, None)}" if rows else "new target"
    return CheckResult(
        target=head.target.name,
        exit_code=BUDGET_BROKEN if broken or refused else NOT_COMPARABLE if unjudged else OK,
        verdict=f"{headline}, which is not allowed" if refused else headline,
        budgets=rows,
        notes=tuple(notes),
        spec=head.target.spec,
        status="new",
        posts=True,
        reason=reason,
        hint='allow it with new = "allow" in [tool.profiler-kit.check]' if refused else "",
    )


def judge_deleted(name: str, spec: str, policy: Policy, *, reason: str, hint: str) -> CheckResult:
    """The result for a target that the base has and the change has not."""
    verdict = {"allow": "deleted", "warn": "deleted (warning)", "error": "deleted, which is not allowed"}[policy]
    return CheckResult(
        target=name,
        exit_code=BUDGET_BROKEN if policy == "error" else OK,
        verdict=verdict,
        budgets=(),
        spec=spec,
        status="deleted",
        posts=True,
        failed_side="change",
        reason=reason,
        hint=hint,
    )


def failed_result(name: str, spec: str, side: CheckSide, error: KitError, budgets: Sequence[Budget]) -> CheckResult:
    """The result where `side` could not be counted, for every output that was requested. No budget is judged."""
    where = f"{error.where}: " if error.where else ""
    noun = "the base" if side == "base" else "this change"
    rows = tuple(_row(budget, _metric(budget), None, None, f"{noun} could not be counted") for budget in budgets)
    return CheckResult(
        target=name,
        exit_code=error.exit_code,
        verdict=f"could not be judged: {noun} could not be counted",
        budgets=rows,
        spec=spec,
        status="failed",
        posts=True,
        failed_side=side,
        reason=f"{where}{error.message}",
        hint=error.hint or "",
    )


def combine(results: Sequence[CheckResult]) -> CheckResults:
    """The results of several targets with one exit code: the gravest."""
    exit_code = next((code for code in GRAVITY if any(r.exit_code == code for r in results)), OK)
    failed = [result for result in results if result.exit_code != OK]
    verdict = (
        f"{len(failed)} of {plural(len(results), 'target')} failed"
        if failed
        else f"all {plural(len(results), 'target')} passed"
    )
    return CheckResults(
        exit_code=exit_code,
        verdict=verdict,
        results=tuple(results),
        posts=any(result.posts is not False for result in results),
    )


def _is_changed(comparison: Comparison) -> bool:
    """Whether anything differs between the two sides: a layer, an edit, a metric or a checkpoint."""
    return bool(
        comparison.edits
        or any(layer.kind != "same" for layer in comparison.layers)
        or any(row.a != row.b for row in comparison.metrics)
        or (comparison.checkpoint is not None and not comparison.checkpoint.is_compatible)
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


def judge(
    budget: Budget,
    base: Report | None,
    head: Report,
    comparison: Comparison | None = None,
    time: StepTimeCheck | None = None,
    untimed: str = ADD_TIME,
) -> BudgetRow:
    """The outcome of `budget`: ok, broken, warned, or not comparable with its reason."""
    metric = _metric(budget)
    if metric.is_measured:
        return _judge_time(budget, metric, time, untimed)
    before = metric_value(metric, budget.module, base, comparison, is_base=True)
    after = metric_value(metric, budget.module, head, comparison, is_base=False)
    reason = _refusal(budget, metric, base, head, before, after)
    allowed = None if reason else _allowed(budget, before)
    row = _row(budget, metric, before, after, reason)
    cause = comparison.reason(metric.key) if comparison is not None and not budget.module else None
    row = replace(row, allowed=allowed, why=cause.sentence if cause is not None else "")
    if metric.of_checkpoint is not None and comparison is not None and comparison.checkpoint is not None and after:
        row = replace(row, why=comparison.checkpoint.sentence)
    if reason or allowed is None or after is None:
        return row
    if after <= allowed:
        return replace(row, outcome="ok")
    why = row.why or largest_parts(head, metric, budget.module)
    return replace(row, outcome=_excess_outcome(budget), reason=_excess(row, allowed, after), why=why)


def _metric(budget: Budget) -> GateMetric:
    metric = gate_metric(budget.metric)
    assert metric is not None  # budgets are parsed with known metrics
    return metric


def _row(budget: Budget, metric: GateMetric, before: int | None, after: int | None, reason: str) -> BudgetRow:
    return BudgetRow(
        metric=metric.key,
        title=f"{metric.title} of {budget.module}" if budget.module else metric.title,
        unit=metric.unit,
        base=before,
        head=after,
        change=after / before - 1 if before and after is not None else None,
        allowed=None,
        limit=budget.written,
        severity=budget.severity,
        outcome="not_comparable",
        reason=reason,
        where=budget.where,
        module=budget.module,
    )


def _judge_time(budget: Budget, metric: GateMetric, time: StepTimeCheck | None, untimed: str) -> BudgetRow:
    """The outcome of a budget on the measured step time. An inconclusive measurement is not comparable."""
    row = _row(budget, metric, measured_value(time, is_base=True), measured_value(time, is_base=False), "")
    if time is None:
        return replace(row, reason=f"not measured: {untimed}") if untimed else replace(row, change=0.0, outcome="ok")
    row = replace(row, change=time.change)
    outcomes: dict[str, BudgetOutcome] = {
        "pass": "ok",
        "fail": _excess_outcome(budget),
        "inconclusive": "not_comparable",
    }
    return replace(row, outcome=outcomes[time.outcome], reason="" if time.outcome == "pass" else time.reason)


def _excess_outcome(budget: Budget) -> BudgetOutcome:
    return "broken" if budget.severity == "error" else "warned"


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
        allowed = math.floor(before * (1 + Fraction(str(budget.increase))))
    else:
        allowed = before + (budget.increase_by or 0)
    return max(allowed, budget.accepted or 0)


def _refusal(
    budget: Budget, metric: GateMetric, base: Report | None, head: Report, before: int | None, after: int | None
) -> str:
    """Why the budget cannot be judged; empty if it can. Absolute limits need no base. Guessed input shapes are never judged."""
    counted = metric.static
    if metric.of_checkpoint is not None:
        return "" if after is not None else "the base has no record of its state"
    if after is None and budget.module:
        return f"no module matches {budget.module}"
    if after is None:
        return "not predicted: name a device with --gpu" if metric.needs_device else "not counted"
    depends_on_inputs = counted is None or counted.depends_on_inputs
    if depends_on_inputs and head.target.inputs_are_guessed:
        return "the input shape was guessed: give it with -i, or define example_inputs"
    head = _of_modules(head, budget.module)
    if budget.limit is not None:
        is_exceeded = after > budget.limit and metric.unit != "basis_points"
        lower = reason_of_lower_bound(head.static) if head.static is not None and _is_work(metric) else ""
        return "" if is_exceeded else lower
    if base is None:
        return "no base to compare with"
    if depends_on_inputs and base.target.inputs_are_guessed:
        return "the input shape of the base was guessed: give both sides the same shape with -i"
    if before is None:
        return f"no module of the base matches {budget.module}" if budget.module else "not counted at the base"
    # figures of a device depend on all that the predicted peak depends on, its step time also on the work
    other = FLOPS if _is_work(metric) else PEAK
    reason = reason_not_comparable(_of_modules(base, budget.module), head, counted or other, one_model=True)
    is_of_inputs = reason != "" and reason == reason_of_inputs(base, head)
    return f"{reason}: give both sides the same shapes with -i" if is_of_inputs else reason


def _is_work(metric: GateMetric) -> bool:
    """Whether ops without a formula are missing in the metric."""
    return metric.unit in ("flops", "macs", "basis_points") or metric.key == "device_step"


def _of_modules(report: Report, pattern: str) -> Report:
    """`report` without those unknown ops that run outside of the modules that match `pattern`, if there is one."""
    if report.static is None or not pattern:
        return report
    inside = (op for op in report.static.uncounted if any(matches_pattern(path, pattern) for path in op.paths))
    return replace(report, static=replace(report.static, uncounted=tuple(inside)))
