"""Configurations that have no samples, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.words import listing, plural, quoted
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun, Failure, FailureKind

DOC = """
Each configuration that failed is told with its reason; those that failed for the same reason together. `high` where nothing
was measured at all, `info` where the user interrupted, otherwise `medium`: the other configurations stand.
"""

_WHAT: Final[dict[FailureKind, str]] = {
    "error": "raised an error",
    "out_of_memory": "ran out of memory",
    "crash": "crashed",
    "timeout": "did not finish in time",
    "interrupted": "stopped when the user interrupted",
    "target": "could not load the target",
}
_ADVICE: Final[dict[FailureKind, str]] = {
    "error": "Read the message, and the end of the log in the report.",
    "out_of_memory": "Try a smaller batch (--batch). A configuration with a large workspace may fail where others fit.",
    "crash": "The process ended without a Python error: read the end of its log in the report.",
    "timeout": "Give it more time (--timeout), or a smaller batch (--batch).",
    "interrupted": "Run it again to measure what is missing.",
    "target": "Correct the target as the message says.",
}


def check(report: Report) -> Iterator[Finding]:
    """Fires once per kind and message."""
    groups: dict[tuple[FailureKind, str], list[tuple[ConfigRun, Failure]]] = {}
    for run in report.runs:
        if run.failure is not None:
            groups.setdefault((run.failure.kind, run.failure.message), []).append((run, run.failure))
    nothing = report.baseline() is None
    for (kind, message), failed in groups.items():
        names = [quoted(run) for run, _ in failed]
        yield RULE.finding(
            severity="info" if kind == "interrupted" else "high" if nothing else "medium",
            title=f"{listing(names)} {_WHAT[kind]}",
            explanation=f"{plural(len(failed), 'configuration')} of {len(report.runs)} "
            f"{'has' if len(failed) == 1 else 'have'} no samples: {_first_line(message)}.",
            advice=_ADVICE[kind],
            evidence=(
                Evidence(name="failed configurations", value=len(failed), unit="count"),
                *(Evidence(name="failure", value=kind, unit="text", where=run.config.name) for run, _ in failed),
            ),
            weight=1.0 if nothing else len(failed) / len(report.runs),
        )


def _first_line(message: str) -> str:
    """The message up to its first line break: the rest is in the log the report keeps."""
    return next(iter(message.strip().splitlines()), "").rstrip(".") or "no message was left"


RULE = Rule("failed_runs", DOC, check, "runs")
