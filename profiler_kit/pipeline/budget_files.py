"""Budgets in the repository's pyproject.toml: `init` adds them, `check --accept` raises them, and a test judges a report
by them.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler_kit.errors import UsageError
from profiler_kit.gate.budget_tables import require_new, with_accepted, with_initial_budgets
from profiler_kit.gate.budgets import merge_budgets, parse_table_budget
from profiler_kit.gate.metrics import gate_metric
from profiler_kit.gate.settings import pyproject_file, read_settings
from profiler_kit.gate.toml_text import read_toml_text
from profiler_kit.pipeline.check import check_reports
from profiler_kit.records.check import Budget, CheckResult
from profiler_kit.records.report import Report
from profiler_kit.records.serde import read_report
from profiler_kit.records.target import TargetSpec
from profiler_kit.temporary_files import replacement


@dataclass(frozen=True, slots=True)
class Change:
    """A changed file: its path relative to the working directory, and the lines that were written."""

    file_name: str
    lines: tuple[str, ...]


def require_new_target(name: str, folder: Path) -> None:
    """Raise UsageError if the target `name` has budgets in pyproject.toml already, or the file has a mistake or is read-only."""
    require_new(read_settings(folder), name)
    _require_writable(pyproject_file(folder) or folder / "pyproject.toml", folder)


def require_acceptable(reason: str, folder: Path) -> None:
    """Raise UsageError, before anything is counted, if `reason` is empty or pyproject.toml is read-only."""
    if not reason.strip():
        raise UsageError(
            "no reason", where="--accept", hint='say why the change is worth it: --accept "wider stem, +2 %"'
        )
    file = pyproject_file(folder)
    if file is not None:
        _require_writable(file, folder)


def _require_writable(file: Path, folder: Path) -> None:
    """Raise UsageError if `file`, which may not exist yet, cannot be replaced."""
    if not os.access(file.parent, os.W_OK | os.X_OK) or (file.exists() and not os.access(file, os.W_OK)):
        raise UsageError(
            "cannot write the file: permission denied",
            where=os.path.relpath(file, folder),
            hint="check the permissions of the file and of its folder",
        )


def add_budgets(report: Report, spec: TargetSpec, name: str, gpu: str | None, folder: Path) -> Change:
    """Add the target `spec` and budgets for the figures of `report` to pyproject.toml, which is created where there is none.

    `folder`: the working directory. Nothing that exists is changed.

    Raises:
        UsageError: the file cannot be extended or written.
    """
    file = pyproject_file(folder) or folder / "pyproject.toml"
    file_name = os.path.relpath(file, folder)
    content, block = with_initial_budgets(
        read_toml_text(file, file_name), report, name, _target_keys(spec, gpu, file.parent), file_name
    )
    _write(file, content, file_name)
    return Change(file_name, tuple(block.splitlines()))


def accept(
    results: Sequence[tuple[CheckResult, Sequence[Budget]]], reason: str, folder: Path, *, writes: bool = True
) -> Change | None:
    """Raise the broken budgets of each result to its values in pyproject.toml; None if none of that file is broken.

    With `writes` False, the file stays unchanged.

    Raises:
        UsageError: a limit that cannot be raised there. Then the file is unchanged.
    """
    file = pyproject_file(folder)
    if file is None:
        return None
    file_name = os.path.relpath(file, folder)
    content = read_toml_text(file, file_name)
    lines: list[str] = []
    for result, budgets in results:
        content, changes = with_accepted(content, result, budgets, reason, file_name)
        lines += changes
    if not lines:
        return None
    if writes:
        _write(file, content, file_name)
    return Change(file_name, tuple(lines))


def _target_keys(spec: TargetSpec, gpu: str | None, folder: Path) -> dict[str, object]:
    """The table of the target: the options of the command line. Raises UsageError for an argument that is not a literal."""
    keys: dict[str, object] = {"target": _relative_target(spec.spec, folder)}
    if spec.inputs:
        keys["inputs"] = list(spec.inputs)
    if spec.kwargs:
        keys["kw"] = dict(_argument(text) for text in spec.kwargs)
    keys |= spec.given_values()
    if spec.channels_last:
        keys["channels_last"] = True
    if not spec.sliced:
        keys["no_slice"] = True
    if gpu is not None:
        keys["gpu"] = gpu
    return keys


def _relative_target(text: str, folder: Path) -> str:
    """TARGET relative to the folder of pyproject.toml, which is committed and read on other machines."""
    path, colon, attribute = text.partition(":")
    if not path.endswith(".py"):
        return text
    return f"{Path(os.path.relpath(path, folder)).as_posix()}{colon}{attribute}"


def _argument(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        literal = ast.literal_eval(value)
    except (SyntaxError, ValueError):
        literal = value if value.isidentifier() else None
    if not isinstance(literal, (bool, int, float, str, list)):
        raise UsageError(
            f"{value} cannot be written into pyproject.toml",
            where=f"--kw {text}",
            hint="define a function in the file that returns the model, and name it: net.py:build",
        )
    return name.strip(), literal


def _write(file: Path, content: str, file_name: str) -> None:
    try:
        with replacement(file) as partial:
            partial.write_bytes(content.encode("utf-8"))
    except OSError as error:
        raise UsageError(
            f"cannot write the file: {error.strerror}", where=file_name, hint="check its permissions"
        ) from error


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
