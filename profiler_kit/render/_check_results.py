"""Results of `check` for the formats of CI systems: read from the document's JSON, whose keys are stable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from profiler_kit.errors import UsageError
from profiler_kit.records.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """The result for one target: its name, the TARGET text, the verdict, the exit code and its budgets as in the JSON."""

    name: str
    spec: str
    verdict: str
    reason: str
    exit_code: int
    budgets: tuple[Mapping[str, Any], ...]

    @property
    def file(self) -> str:
        """The target's file; pyproject.toml where the TARGET text names none."""
        path = self.spec.rpartition(":")[0] or self.spec
        is_inside = path.endswith(".py") and not path.startswith("/") and ".." not in path.split("/")
        return path.removeprefix("./") if is_inside else "pyproject.toml"


def target_results(document: Document, format_name: str) -> tuple[TargetResult, ...]:
    """The results in `document`, one per target. Raises: UsageError for a document of another kind."""
    data = json.loads(document.json)
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind not in ("check", "checks"):
        raise UsageError(
            f"the format {format_name} is for results of check", hint="use another format, such as json or markdown"
        )
    entries = data["results"] if kind == "checks" else [data]
    return tuple(_result(entry) for entry in entries)


def _result(entry: Mapping[str, Any]) -> TargetResult:
    return TargetResult(
        name=entry.get("name") or entry["target"],
        spec=entry.get("spec") or _head_spec(entry),
        verdict=entry["verdict"],
        reason=entry.get("reason") or "",
        exit_code=entry["exit_code"],
        budgets=tuple(entry["budgets"]),
    )


def _head_spec(entry: Mapping[str, Any]) -> str:
    comparison = entry.get("comparison") or {}
    return str((comparison.get("b") or {}).get("spec") or "")


def problems(result: TargetResult) -> Iterator[tuple[str, str, bool]]:
    """What is wrong with `result`: the metric (empty: the target as a whole), a sentence, and whether it fails the check."""
    for row in result.budgets:
        if row["outcome"] in ("broken", "warned", "not_comparable"):
            sentence = " ".join(part for part in (row.get("reason") or row["outcome"], row.get("why") or "") if part)
            fails = row["outcome"] != "warned" and row["severity"] == "error"
            yield budget_name(row), f"{row['title']}: {sentence}", fails
    if result.exit_code and not any(row["outcome"] in ("broken", "not_comparable") for row in result.budgets):
        yield "", f"{result.verdict}. {result.reason}".rstrip(), True


def budget_name(row: Mapping[str, Any]) -> str:
    """The limited metric, with the modules that the budget limits: ``params@encoder.*``."""
    return f"{row['metric']}@{row['module']}" if row.get("module") else str(row["metric"])
