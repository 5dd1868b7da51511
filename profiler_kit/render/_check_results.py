"""Results of `check` for the formats of CI systems."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.errors import ReportError, UsageError
from profiler_kit.records.check import BudgetRow, CheckResult, CheckResults
from profiler_kit.records.document import Document
from profiler_kit.records.serde import loads_saved


def target_results(document: Document, format_name: str) -> tuple[CheckResult, ...]:
    """The results in `document`, one per target. Raises: UsageError for a document of another kind."""
    try:
        record = loads_saved(document.json.encode(errors="replace"), format_name)
    except ReportError:  # a document without a record
        record = None
    if isinstance(record, CheckResults):
        return record.results
    if isinstance(record, CheckResult):
        return (record,)
    raise UsageError(
        f"the format {format_name} is for results of check", hint="use another format, such as json or markdown"
    )


def name_of(result: CheckResult) -> str:
    """The target's name in pyproject.toml, or its short name."""
    return result.name or result.target


def file_of(result: CheckResult) -> str:
    """The target's file; pyproject.toml where the TARGET text names none."""
    spec = result.spec or (result.comparison.b.spec if result.comparison is not None else "")
    path = spec.rpartition(":")[0] or spec
    is_inside = path.endswith(".py") and not path.startswith("/") and ".." not in path.split("/")
    return path.removeprefix("./") if is_inside else "pyproject.toml"


def problems(result: CheckResult) -> Iterator[tuple[str, str, bool]]:
    """What is wrong with `result`: the metric (empty: the target as a whole), a sentence, and whether it fails the check."""
    for row in result.budgets:
        if row.outcome in ("broken", "warned", "not_comparable"):
            sentence = " ".join(part for part in (row.reason or row.outcome, row.why) if part)
            fails = row.outcome != "warned" and row.severity == "error"
            yield budget_name(row), f"{row.title}: {sentence}", fails
    if result.exit_code and not any(row.outcome in ("broken", "not_comparable") for row in result.budgets):
        yield "", f"{result.verdict}. {result.reason}".rstrip(), True


def budget_name(row: BudgetRow) -> str:
    """The limited metric, with the modules that the budget limits: ``params@encoder.*``."""
    return f"{row.metric}@{row.module}" if row.module else row.metric
