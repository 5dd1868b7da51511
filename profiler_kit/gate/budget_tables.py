"""Budgets written into pyproject.toml: new ones from the figures of a model, and limits that a change raises on purpose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from profiler_kit.errors import UsageError
from profiler_kit.gate.budgets import COMMAND_LINE, STRICT, parse_budget
from profiler_kit.gate.metrics import GateMetric, gate_metric, metric_value
from profiler_kit.gate.settings import Settings
from profiler_kit.gate.toml_text import comment_text, parse_toml, toml_key, toml_value, with_block, with_value
from profiler_kit.records.check import Budget, BudgetRow, CheckResult
from profiler_kit.records.report import Report
from profiler_kit.units import Unit, parse_bytes, parse_count, text

_MARGINS: Final = {
    "flops": 10,
    "saved": 10,
    "peak": 10,
    "params": 5,
    "uncounted": 0,
}  # percent, in the order of the table
_OPTIONAL: Final = ("forward_flops", "trainable_params", "largest_layer")
_TOOL: Final = ("tool", "profiler-kit")
_BYTE_UNITS: Final = ("", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNT_UNITS: Final = ("", "K", "M", "G", "T", "P", "E")


def limit_value(value: int, unit: Unit) -> str | int:
    """The smallest short limit that allows `value`: ``"25.33G"``, ``"170.8MiB"``, ``"42.6%"``, or a small count as it is."""
    if unit == "basis_points":
        return f"{_decimal(Fraction(math.ceil(Fraction(value, 10)), 10))}%"
    if unit == "ns":
        return f"{_decimal(Fraction(math.ceil(Fraction(value, 1000))))}us"
    if unit == "bytes":
        power = min((value.bit_length() - 1) // 10 if value else 0, len(_BYTE_UNITS) - 1)
        factor, parse, suffix = 1024**power, parse_bytes, _BYTE_UNITS[power]
    else:
        power = min((len(str(value)) - 1) // 3, len(_COUNT_UNITS) - 1) if value >= 10_000 else 0
        factor, parse, suffix = 1000**power, parse_count, _COUNT_UNITS[power]
    if power == 0:
        return f"{value}B" if unit == "bytes" and value else value
    digits = 10 ** (4 - len(str(value // factor)))  # four significant ones
    hundredths = math.ceil(Fraction(value * digits, factor))
    while parse(written := f"{_decimal(Fraction(hundredths, digits))}{suffix}") < value:
        hundredths += 1  # the limit is parsed with floats
    return written


def _decimal(value: Fraction) -> str:
    return f"{float(value):.4f}".rstrip("0").rstrip(".")


def require_new(settings: Settings, name: str) -> None:
    """Raise UsageError if the target `name` has a table and budgets already, or cannot have budgets."""
    if not name.strip() or gate_metric(name) is not None:
        raise UsageError(f"{name!r} is not the name of a target", where="--name", hint="choose another name")
    if name in settings.targets and name in settings.by_target:
        raise UsageError(
            f"{name} has a target and budgets already",
            where=settings.file_name,
            hint=f'to raise exceeded limits: check {name} --accept "REASON"; to start again, remove '
            f"[{_header('budgets', name)}]",
        )


def with_initial_budgets(
    content: str, report: Report, name: str, target: Mapping[str, Any], file_name: str
) -> tuple[str, str]:
    """The text `content` of a pyproject.toml with a table of the target `name` and one of its budgets, and the new lines.

    `target`: the keys of the target's table. An existing table stays as it is, and is not added again.

    Raises:
        UsageError: the file cannot be extended at its end.
    """
    tables = parse_toml(content, file_name).get(_TOOL[0], {}).get(_TOOL[1], {})
    blocks, added = [], {}
    if name not in tables.get("targets", {}):
        lines = [f"[{_header('targets', name)}]", *(f"{key} = {toml_value(item)}" for key, item in target.items())]
        blocks.append("\n".join(lines))
        added["targets"] = {name: dict(target)}
    if name not in tables.get("budgets", {}):
        lines, values = _budget_lines(report)
        blocks.append("\n".join([f"[{_header('budgets', name)}]", *lines]))
        added["budgets"] = {name: values}
    block = "\n\n".join(blocks) + "\n"
    return with_block(content, block, {_TOOL[0]: {_TOOL[1]: added}}, file_name), block


def _header(kind: str, name: str) -> str:
    return ".".join((*_TOOL, kind, toml_key(name)))


def _budget_lines(report: Report) -> tuple[list[str], dict[str, Any]]:
    """The lines of a table of budgets for the figures of `report`, and the table's content."""
    lines = [
        "# limits of `profiler-kit check`: absolute, or +10% for an increase over the base; severity error, warn or off"
    ]
    values: dict[str, Any] = {}
    for key, margin in _MARGINS.items():
        metric, value = _value(report, key)
        if value is None or (value == 0 and margin):
            continue
        values[key] = limit_value(value + value * margin // 100, metric.unit)
        margin_text = f" and {margin} %" if margin else ""
        lines.append(
            f"{key} = {toml_value(values[key])}  # today {text(value, metric.unit)}{margin_text}: {metric.doc}"
        )
    checkpoint, _ = _value(report, "checkpoint")
    values[checkpoint.key] = {"limit": 0, "severity": "warn"}
    lines.append(f"{checkpoint.key} = {toml_value(values[checkpoint.key])}  # {checkpoint.doc}")
    for key in _OPTIONAL:
        metric, value = _value(report, key)
        if value:
            lines.append(
                f"# {key} = {toml_value(limit_value(value, metric.unit))}  # today {text(value, metric.unit)}: {metric.doc}"
            )
    return lines, values


def _value(report: Report, key: str) -> tuple[GateMetric, int | None]:
    metric = gate_metric(key)
    assert metric is not None  # a key of this file
    return metric, metric_value(metric, "", report, None, is_base=True)


def raised_options(options: Sequence[str], strict: bool, rows: Sequence[BudgetRow]) -> tuple[list[str], bool]:
    """The values of ``--budget``, and whether ``--strict`` stays, so that they allow the broken `rows` of the command line."""
    raised = {
        (row.metric, row.module): f"{_key(row)}={limit_value(row.head, row.unit)}"
        for row in rows
        if row.outcome == "broken" and row.head is not None and row.where.startswith(COMMAND_LINE)
    }
    is_refused = any(row.where == STRICT and row.outcome == "broken" for row in rows)
    values = [raised.pop(parse_budget(option).key, option) for option in options]
    return [*values, *raised.values()], strict and not is_refused


def with_accepted(
    content: str, result: CheckResult, budgets: Sequence[Budget], reason: str, file_name: str
) -> tuple[str, list[str]]:
    """The text `content` of a pyproject.toml in which the broken budgets of `result` allow its values, and the new entries.

    An absolute limit is raised. A limit over the base stays and gets ``accepted``, an absolute value that it allows whatever the
    base is: once the base has that value, the old limit holds again. Limits of all targets stay; this target gets its own.

    Limits of the command line are in no file: `raised_options` raises them.

    Raises:
        UsageError: a limit is on a measured time, or cannot be edited in place.
    """
    changes = []
    by_key = {budget.key: budget for budget in budgets}
    for row in result.budgets:
        if row.outcome == "broken" and row.head is not None and not row.where.startswith(COMMAND_LINE):
            budget = by_key[row.metric, row.module]
            content, change = _with_accepted(content, row, budget, result.name, reason, file_name)
            changes.append(change)
    return content, changes


def _with_accepted(
    content: str, row: BudgetRow, budget: Budget, name: str, reason: str, file_name: str
) -> tuple[str, str]:
    metric = gate_metric(row.metric)
    assert metric is not None
    assert row.head is not None
    if metric.is_measured:
        raise UsageError(
            "a measured time cannot be accepted: machines differ", where=budget.where, hint="raise its increase by hand"
        )
    key = _key(row)
    new_limit = limit_value(row.head, metric.unit)
    general: dict[str, Any] = parse_toml(content, file_name)[_TOOL[0]][_TOOL[1]]["budgets"]
    own: dict[str, Any] | None = general.get(name) if gate_metric(name) is None else None
    source = own if own is not None and key in own else general
    new_value = _accepted_value(source[key], budget, new_limit)
    base = "" if row.base is None else f" (base {text(row.base, row.unit)})"
    reminder = "; lower it after the merge" if metric.needs_base else ""
    comment = f"accepted {text(row.head, row.unit)}{base}: {reason}{reminder}"
    path = (*_TOOL, "budgets", name, key)
    if own is not None:
        content = with_value(content, path, new_value, comment, file_name)
    else:
        block = f"[{_header('budgets', name)}]\n{toml_key(key)} = {toml_value(new_value)}  # {comment_text(comment)}\n"
        added = {_TOOL[0]: {_TOOL[1]: {"budgets": {name: {key: new_value}}}}}
        content = with_block(content, block, added, file_name)
    return content, f"[{_header('budgets', name)}] {toml_key(key)} = {toml_value(new_value)}"


def _key(row: BudgetRow) -> str:
    return f"{row.metric}@{row.module}" if row.module else row.metric


def _accepted_value(old: object, budget: Budget, new_limit: str | int) -> object:
    """The new value of a budget, in the form of the old one."""
    fields = dict(old) if isinstance(old, Mapping) else {}
    if budget.limit is not None:
        return {**fields, "limit": new_limit} if fields else new_limit
    return {**(fields or {"increase": budget.written.removeprefix("+")}), "accepted": new_limit}
