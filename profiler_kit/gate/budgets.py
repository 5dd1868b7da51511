"""Budgets: limits on metrics, as texts of the command line and of pyproject.toml (``flops=+10%``, ``params = "26M"``).

A decrease never breaks a budget.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, get_args

from profiler_kit.errors import UsageError
from profiler_kit.gate.metrics import ORDER, GateMetric, find_metric, nearest
from profiler_kit.records.check import Budget, BudgetSeverity
from profiler_kit.units import Unit, parse_bytes, parse_count, parse_seconds

COMMAND_LINE: Final = "--"  # begins the place of a budget that no file has
STRICT: Final = "--strict"
FIELDS: Final = frozenset({"increase", "limit", "accepted", "severity"})
SEVERITIES: Final[tuple[BudgetSeverity, ...]] = get_args(BudgetSeverity)
_PERCENT: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*%\Z")
_PARSERS: Final[dict[Unit, Callable[[str], int]]] = {
    "bytes": parse_bytes,
    "ns": lambda written: round(parse_seconds(written) * 1e9),
}
_EXAMPLES: Final[dict[Unit, str]] = {"bytes": "3GiB", "ns": "10ms", "basis_points": "60%"}


def merge_budgets(*sources: Iterable[Budget]) -> tuple[Budget, ...]:
    """The active budgets in the order of metrics. A later source replaces earlier budgets on the same; ``off`` removes them."""
    merged = {budget.key: budget for source in sources for budget in source}
    active = (budget for budget in merged.values() if budget.severity != "off")
    return tuple(sorted(active, key=lambda budget: (ORDER[budget.metric], budget.module)))


def parse_budgets(options: Sequence[str]) -> tuple[Budget, ...]:
    """Parse the values of ``--budget``. Raises UsageError, also for two limits on the same."""
    budgets: dict[tuple[str, str], Budget] = {}
    for option in options:
        budget = parse_budget(option)
        if budget.key in budgets:
            raise UsageError(
                f"the same metric is limited twice, also by {budgets[budget.key].where}",
                where=budget.where,
                hint="keep one of the two",
            )
        budgets[budget.key] = budget
    return tuple(budgets.values())


def parse_budget(option: str) -> Budget:
    """Parse ``flops=+10%``, ``params@encoder=26M`` or ``uncounted=off``. Raises UsageError."""
    where = f"--budget {option}"
    name, equals, limit = option.partition("=")
    if not equals or not name.strip() or not limit.strip():
        raise UsageError(
            "not of the form METRIC=LIMIT", where=where, hint="write --budget flops=+10% or --budget params=26M"
        )
    return _budget(*find_metric(name.strip(), where), limit.strip(), where)


def with_strict_budget(budgets: Sequence[Budget]) -> tuple[Budget, ...]:
    """`budgets` with the budget of ``--strict``: no call of an op without a formula."""
    return merge_budgets(budgets, [replace(parse_budget("uncounted=0"), where=STRICT)])


def parse_table_budget(name: str, value: object, where: str) -> Budget:
    """Parse a table's entry ``name = value``. `where`: its place, for errors. Raises UsageError."""
    metric, module = find_metric(name, where)
    if not isinstance(value, dict):
        return _budget(metric, module, value, where)
    unknown = sorted(value.keys() - FIELDS)
    if unknown:
        message = f"unknown key {unknown[0]!r}{nearest(unknown[0], FIELDS)}"
        raise UsageError(message, where=where, hint=f"the keys are {', '.join(sorted(FIELDS))}")
    severity = value.get("severity", "error")
    if severity not in SEVERITIES:
        raise UsageError(
            f"unknown severity {severity!r}{nearest(str(severity), SEVERITIES)}",
            where=where,
            hint=f"the severities are {', '.join(SEVERITIES)}",
        )
    limits = [key for key in ("increase", "limit") if key in value]
    if severity == "off" and not limits:
        return _budget(metric, module, "off", where)
    if len(limits) != 1:
        raise UsageError(
            "both increase and limit are set" if limits else "neither increase nor limit is set",
            where=where,
            hint='give one: increase = "10%" (over the base) or limit = "26M" (absolute)',
        )
    limit = value[limits[0]]
    if limits == ["increase"] and isinstance(limit, (str, int)) and not isinstance(limit, bool):
        limit = f"+{str(limit).strip().removeprefix('+')}"
    elif isinstance(limit, str) and limit.strip().startswith("+"):
        raise UsageError(f"{limit!r} is an increase", where=where, hint=f'write increase = "{limit.strip()[1:]}"')
    budget = replace(_budget(metric, module, limit, where), severity=severity)
    if "accepted" not in value:
        return budget
    if budget.limit is not None:
        raise UsageError("accepted goes with increase", where=where, hint="raise the limit instead")
    accepted = _budget(metric, module, value["accepted"], f"{where} accepted").limit
    if accepted is None:
        raise _invalid_limit(metric, value["accepted"], f"{where} accepted")
    return replace(budget, accepted=accepted)


def _budget(metric: GateMetric, module: str, value: object, where: str) -> Budget:
    """Parse a limit: ``+10%`` or ``+5M`` (over the base), ``26M`` (absolute) or ``off``."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _invalid_limit(metric, value, where)
    limit_text = str(value).strip()
    if limit_text == "off":
        return Budget(metric=metric.key, module=module, written="off", where=where, severity="off")
    is_relative = limit_text.startswith("+")
    budget = Budget(metric=metric.key, module=module, written=limit_text, where=where)
    percent = _PERCENT.match(limit_text.removeprefix("+").strip())
    if percent is not None and is_relative:
        return replace(budget, increase=float(Fraction(percent.group(1)) / 100))
    if metric.is_measured:
        raise UsageError(
            "a measured time has no absolute limit: machines differ", where=where, hint=f"write {metric.key} = +10%"
        )
    if percent is not None and metric.unit == "basis_points":
        return replace(budget, limit=round(Fraction(percent.group(1)) * 100))
    if percent is not None:
        raise UsageError(
            f"{limit_text!r} is not an absolute limit",
            where=where,
            hint=f"write +{limit_text} for an increase over the base",
        )
    try:
        number = _PARSERS.get(metric.unit, parse_count)(limit_text.removeprefix("+"))
    except ValueError as error:
        raise _invalid_limit(metric, value, where) from error
    return replace(budget, increase_by=number) if is_relative else replace(budget, limit=number)


def _invalid_limit(metric: GateMetric, value: object, where: str) -> UsageError:
    absolute = _EXAMPLES.get(metric.unit, "26M")
    return UsageError(
        f"{value!r} is not a limit for {metric.key}",
        where=where,
        hint=f"write +10% (over the base), {absolute} (absolute) or off",
    )
