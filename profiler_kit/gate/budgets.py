"""Budgets: limits on counted metrics, from the command line and from pyproject.toml.

On the command line ``--budget flops=+10%``; in pyproject.toml::

    [tool.profiler-kit.budgets]            # every target
    flops = "+10%"                         # at most 10 % above the base
    params = "26M"                         # absolute limit
    peak = { limit = "3GiB", severity = "warn" }

    [tool.profiler-kit.budgets.my_model]   # one target: overrides the metrics above
    saved = { increase = "5%" }

Budgets apply to counted metrics only: counts are exact, so one job counts both sides without noise or a stored baseline.
A decrease never breaks a budget.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, get_args

from profiler_kit.errors import UsageError
from profiler_kit.records.comparison import Budget, BudgetSeverity
from profiler_kit.records.metrics import METRICS, StaticMetric
from profiler_kit.records.metrics import find_metric as metric_by_key
from profiler_kit.units import parse_bytes, parse_count

TABLE: Final = "[tool.profiler-kit.budgets]"
MEASURED_METRICS: Final = frozenset(
    {"step_time", "step", "time", "device_time", "peak_allocated", "step_ns", "device_ns", "latency"}
)
FIELDS: Final = frozenset({"increase", "limit", "severity"})
SEVERITIES: Final[tuple[BudgetSeverity, ...]] = get_args(BudgetSeverity)
_PERCENT: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*%\Z")


def load_budgets(pyproject_dir: Path, target_name: str, options: Sequence[str] = ()) -> tuple[Budget, ...]:
    """The budgets for `target_name`: the general table, overridden by the target's table, overridden by ``--budget``.

    The tables are in the nearest pyproject.toml from `pyproject_dir` up to the repository's root. Budgets of severity
    ``off`` are left out.

    Raises:
        UsageError: an unknown metric, an invalid limit, a file that is not TOML.
    """
    budgets: dict[str, Budget] = {}
    file = _pyproject(pyproject_dir)
    if file is not None:
        general, by_target = _tables(file, os.path.relpath(file, pyproject_dir))
        budgets |= {budget.metric: budget for budget in (*general, *by_target.get(target_name, ()))}
    budgets |= {budget.metric: budget for budget in map(parse_budget, options)}
    order = [metric.key for metric in METRICS]
    active = (budget for budget in budgets.values() if budget.severity != "off")
    return tuple(sorted(active, key=lambda budget: order.index(budget.metric)))


def parse_budget(option: str) -> Budget:
    """Parse ``flops=+10%``, ``params=26M`` or ``uncounted=off``. Raises UsageError."""
    where = f"--budget {option}"
    name, equals, limit = option.partition("=")
    if not equals or not name.strip() or not limit.strip():
        raise UsageError(
            "not of the form METRIC=LIMIT", where=where, hint="write --budget flops=+10% or --budget params=26M"
        )
    return _budget(find_metric(name.strip(), where), limit.strip(), where)


def with_strict_budget(budgets: Sequence[Budget]) -> tuple[Budget, ...]:
    """`budgets` with the budget of ``--strict``: no call of an op without a formula."""
    strict = replace(parse_budget("uncounted=0"), where="--strict")
    return (*(budget for budget in budgets if budget.metric != strict.metric), strict)


def _pyproject(folder: Path) -> Path | None:
    """The nearest pyproject.toml from `folder` up to the repository's root; None without one."""
    start = folder.resolve()
    for parent in (start, *start.parents):
        if (parent / "pyproject.toml").is_file():
            return parent / "pyproject.toml"
        if (parent / ".git").exists():
            return None
    return None


def _tables(file: Path, file_name: str) -> tuple[list[Budget], dict[str, list[Budget]]]:
    """The budgets for all targets, and those for single targets by name. All tables are parsed, to report every mistake.

    `file_name`: the file's name in messages.
    """
    table = _toml(file, file_name)
    for name in ("tool", "profiler-kit", "budgets"):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise UsageError(f"{name} is not a table", where=file_name, hint=f"write a {TABLE} table")
    general: list[Budget] = []
    by_target: dict[str, list[Budget]] = {}
    for name, value in table.items():
        if (
            isinstance(value, dict)
            and metric_by_key(name) is None
            and name not in MEASURED_METRICS
            and not FIELDS & value.keys()
        ):
            prefix = f"{file_name}: {TABLE[:-1]}.{name}]"
            by_target[name] = [_table_budget(key, limit, f"{prefix} {key}") for key, limit in value.items()]
        else:
            general.append(_table_budget(name, value, f"{file_name}: {TABLE} {name}"))
    return general, by_target


def _toml(file: Path, file_name: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        values: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not valid TOML: {error}", where=file_name, hint="correct the file") from error
    except OSError as error:
        raise UsageError(
            f"cannot read the file: {error.strerror}", where=file_name, hint="check its permissions"
        ) from error
    return values


def _table_budget(name: str, value: object, where: str) -> Budget:
    """Parse a table's entry ``name = value``."""
    metric = find_metric(name, where)
    if not isinstance(value, dict):
        return _budget(metric, value, where)
    unknown = sorted(value.keys() - FIELDS)
    if unknown:
        raise UsageError(f"unknown key {unknown[0]!r}", where=where, hint=f"the keys are {', '.join(sorted(FIELDS))}")
    severity = value.get("severity", "error")
    if severity not in SEVERITIES:
        raise UsageError(
            f"unknown severity {severity!r}", where=where, hint=f"the severities are {', '.join(SEVERITIES)}"
        )
    limits = [key for key in ("increase", "limit") if key in value]
    if severity == "off" and not limits:
        return _budget(metric, "off", where)
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
    return replace(_budget(metric, limit, where), severity=severity)


def _budget(metric: StaticMetric, value: object, where: str) -> Budget:
    """Parse a limit: ``+10%`` or ``+5M`` (over the base), ``26M`` (absolute) or ``off``."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _invalid_limit(metric, value, where)
    limit_text = str(value).strip()
    if limit_text == "off":
        return Budget(metric=metric.key, written="off", where=where, severity="off")
    is_relative = limit_text.startswith("+")
    percent = _PERCENT.match(limit_text.removeprefix("+").strip())
    if percent is not None:
        if not is_relative:
            raise UsageError(
                f"{limit_text!r} is not an absolute limit",
                where=where,
                hint=f"write +{limit_text} for an increase over the base",
            )
        fraction = float(Fraction(percent.group(1)) / 100)
        return Budget(metric=metric.key, written=limit_text, where=where, increase=fraction)
    try:
        number = (parse_bytes if metric.unit == "bytes" else parse_count)(limit_text.removeprefix("+"))
    except ValueError as error:
        raise _invalid_limit(metric, value, where) from error
    if is_relative:
        return Budget(metric=metric.key, written=limit_text, where=where, increase_by=number)
    return Budget(metric=metric.key, written=limit_text, where=where, limit=number)


def _invalid_limit(metric: StaticMetric, value: object, where: str) -> UsageError:
    absolute = "3GiB" if metric.unit == "bytes" else "26M"
    return UsageError(
        f"{value!r} is not a limit for {metric.key}",
        where=where,
        hint=f"write +10% (over the base), {absolute} (absolute) or off",
    )


def find_metric(name: str, where: str) -> StaticMetric:
    """The counted metric called `name`. `where`: the place of the name, for the error message. Raises UsageError."""
    metric = metric_by_key(name)
    if metric is not None:
        return metric
    choices = [metric.key for metric in METRICS]
    if name in MEASURED_METRICS:
        raise UsageError(
            f"{name} is a measured metric, and measured metrics cannot have budgets: they differ from run to run",
            where=where,
            hint=f"limit a counted metric: {', '.join(choices)}",
        )
    near = get_close_matches(name, choices, n=1)
    raise UsageError(
        f"unknown metric {name!r}" + (f", nearest: {near[0]}" if near else ""),
        where=where,
        hint=f"metrics: {', '.join(choices)}",
    )
