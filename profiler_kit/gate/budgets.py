"""Budgets: limits on counted metrics, and where they are written.

On the command line ``--budget flops=+10%``; in pyproject.toml::

    [tool.profiler-kit.budgets]            # every target
    flops = "+10%"                         # more than the base by no more than
    params = "26M"                         # never above
    peak = { limit = "3GiB", severity = "warn" }

    [tool.profiler-kit.budgets.my_model]   # this target: its metrics replace those above
    saved = { increase = "5%" }

Only counted metrics can be limited: they repeat exactly, so both sides are made in one job, without noise or a stored
baseline. A metric that falls never breaks its budget.
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
from profiler_kit.records.metrics import METRICS, StaticMetric, metric
from profiler_kit.units import parse_bytes, parse_count

TABLE: Final = "[tool.profiler-kit.budgets]"
TIMED: Final = frozenset(
    {"step_time", "step", "time", "device_time", "peak_allocated", "step_ns", "device_ns", "latency"}
)
FIELDS: Final = frozenset({"increase", "limit", "severity"})
SEVERITIES: Final[tuple[BudgetSeverity, ...]] = get_args(BudgetSeverity)
_PERCENT: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*%\Z")


def load_budgets(pyproject_dir: Path, target_name: str, options: Sequence[str] = ()) -> tuple[Budget, ...]:
    """The budgets for `target_name`: the table's, its own table's over them, and ``--budget`` texts over both.

    The table is that of the nearest pyproject.toml from `pyproject_dir` upwards, as far as the repository goes. Budgets
    of severity ``off`` are left out.

    Raises:
        UsageError: an unknown metric, a limit that can't be read, a file that is not TOML.
    """
    found: dict[str, Budget] = {}
    file = _pyproject(pyproject_dir)
    if file is not None:
        general, own = _tables(file, os.path.relpath(file, pyproject_dir))
        for one in (*general, *own.get(target_name, ())):
            found[one.metric] = one
    for option in options:
        one = parse_budget(option)
        found[one.metric] = one
    order = [known.key for known in METRICS]
    kept = (one for one in found.values() if one.severity != "off")
    return tuple(sorted(kept, key=lambda one: order.index(one.metric)))


def parse_budget(option: str) -> Budget:
    """The budget written as ``flops=+10%``, ``params=26M`` or ``uncounted=off``. Raises UsageError."""
    where = f"--budget {option}"
    name, found, limit = option.partition("=")
    if not found or not name.strip() or not limit.strip():
        raise UsageError("no METRIC=LIMIT", where=where, hint="write --budget flops=+10% or --budget params=26M")
    return _budget(known_metric(name.strip(), where), limit.strip(), where)


def with_strictness(budgets: Sequence[Budget]) -> tuple[Budget, ...]:
    """`budgets` with the one that ``--strict`` is: no call of an op without a formula."""
    none = replace(parse_budget("uncounted=0"), where="--strict")
    return (*(one for one in budgets if one.metric != none.metric), none)


def _pyproject(folder: Path) -> Path | None:
    """The nearest pyproject.toml from `folder` upwards; the search ends at the root of the repository."""
    start = folder.resolve()
    for place in (start, *start.parents):
        if (place / "pyproject.toml").is_file():
            return place / "pyproject.toml"
        if (place / ".git").exists():
            return None
    return None


def _tables(file: Path, shown: str) -> tuple[list[Budget], dict[str, list[Budget]]]:
    """The budgets for every target, and those of single targets by name. All are read, so that no mistake hides.

    `shown` is how messages name the file.
    """
    table = _toml(file, shown)
    for name in ("tool", "profiler-kit", "budgets"):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise UsageError(f"{name} is no table", where=shown, hint=f"write a {TABLE} table")
    general: list[Budget] = []
    own: dict[str, list[Budget]] = {}
    for name, value in table.items():
        if isinstance(value, dict) and metric(name) is None and name not in TIMED and not FIELDS & value.keys():
            own[name] = [_written(key, limit, f"{shown}: {TABLE[:-1]}.{name}] {key}") for key, limit in value.items()]
        else:
            general.append(_written(name, value, f"{shown}: {TABLE} {name}"))
    return general, own


def _toml(file: Path, shown: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        values: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not TOML: {error}", where=shown, hint="correct the file") from error
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=shown, hint="make it readable") from error
    return values


def _written(name: str, value: object, where: str) -> Budget:
    """The budget that a table's `name = value` means."""
    known = known_metric(name, where)
    if not isinstance(value, dict):
        return _budget(known, value, where)
    unknown = sorted(value.keys() - FIELDS)
    if unknown:
        raise UsageError(f"unknown key {unknown[0]!r}", where=where, hint=f"the keys are {', '.join(sorted(FIELDS))}")
    severity = value.get("severity", "error")
    if severity not in SEVERITIES:
        raise UsageError(
            f"severity {severity!r} does not exist", where=where, hint=f"severities: {', '.join(SEVERITIES)}"
        )
    limits = [key for key in ("increase", "limit") if key in value]
    if severity == "off" and not limits:
        return _budget(known, "off", where)
    if len(limits) != 1:
        raise UsageError(
            "both increase and limit are given" if limits else "neither increase nor limit is given",
            where=where,
            hint='give one: increase = "10%" (over the base) or limit = "26M" (absolute)',
        )
    limit = value[limits[0]]
    if limits == ["increase"] and isinstance(limit, (str, int)) and not isinstance(limit, bool):
        limit = f"+{str(limit).strip().removeprefix('+')}"
    elif isinstance(limit, str) and limit.strip().startswith("+"):
        raise UsageError(f"{limit!r} is an increase", where=where, hint=f'write increase = "{limit.strip()[1:]}"')
    return replace(_budget(known, limit, where), severity=severity)


def _budget(known: StaticMetric, value: object, where: str) -> Budget:
    """The budget of a limit written ``+10%`` or ``+5M`` (over the base), ``26M`` (absolute) or ``off``."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _bad_limit(known, value, where)
    written = str(value).strip()
    if written == "off":
        return Budget(metric=known.key, written="off", where=where, severity="off")
    over = written.startswith("+")
    share = _PERCENT.match(written.removeprefix("+").strip())
    if share is not None:
        if not over:
            raise UsageError(
                f"{written!r} is no absolute limit", where=where, hint=f"write +{written} for an increase over the base"
            )
        fraction = float(Fraction(share.group(1)) / 100)
        return Budget(metric=known.key, written=written, where=where, increase=fraction)
    try:
        number = (parse_bytes if known.unit == "bytes" else parse_count)(written.removeprefix("+"))
    except ValueError as error:
        raise _bad_limit(known, value, where) from error
    if over:
        return Budget(metric=known.key, written=written, where=where, increase_by=number)
    return Budget(metric=known.key, written=written, where=where, limit=number)


def _bad_limit(known: StaticMetric, value: object, where: str) -> UsageError:
    absolute = "3GiB" if known.unit == "bytes" else "26M"
    return UsageError(
        f"{value!r} is no limit for {known.key}",
        where=where,
        hint=f"write +10% (over the base), {absolute} (absolute) or off",
    )


def known_metric(name: str, where: str) -> StaticMetric:
    """The metric called `name`. Raises UsageError that names those there are; `where` is the place it was written at."""
    found = metric(name)
    if found is not None:
        return found
    choices = [one.key for one in METRICS]
    if name in TIMED:
        raise UsageError(
            f"{name} is measured, and measured metrics can't be budgets yet: they differ from run to run",
            where=where,
            hint=f"limit a counted metric: {', '.join(choices)}",
        )
    near = get_close_matches(name, choices, n=1)
    raise UsageError(
        f"there is no metric {name!r}" + (f", nearest: {near[0]}" if near else ""),
        where=where,
        hint=f"metrics: {', '.join(choices)}",
    )
