"""Configurations that failed, and the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import advise, join_list, plural, quoted_name
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.records.report import Evidence, Finding, Report, Severity
from profiler_kit.records.runs import ConfigRun, FailureKind

DOC = """
Fires when a configuration failed. Configurations that failed for the same reason share one finding.

- `high`: no configuration was measured.
- `medium`: the baseline was measured, and a combination of cuDNN's flags failed.
- `low`: only configurations with other settings failed, such as another layout or data type. The model works without them.
- `info`: the user interrupted the run.
"""

_FAILURE_WORDS: Final[dict[FailureKind, str]] = {
    "error": "raised an error",
    "out_of_memory": "ran out of memory",
    "crash": "crashed",
    "timeout": "did not finish in time",
    "interrupted": "stopped when the user interrupted",
    "target": "could not load the target",
}
_ADVICE: Final[dict[FailureKind, str]] = {
    "error": "Read the message, and the end of the log in the report.",
    "out_of_memory": "Try a smaller batch (--batch). A configuration with a large workspace may fail while others fit.",
    "crash": "The process ended without a Python error: read the end of its log in the report.",
    "timeout": "Allow more time (--timeout), or use a smaller batch (--batch).",
    "interrupted": "Run the command again to measure the missing configurations.",
    "target": "Fix the target as the message says.",
}
_UNUSED_ADVICE: Final = advise(
    "Some parameters take no part in the loss. Remove them from the model, or search for them in each step: {code}, measured by "
    "`--configs find_unused`.",
    "DistributedDataParallel(model, find_unused_parameters=True)",
)
# The baseline ran, so the target is right, and only a setting does not fit it.
_OPTIONAL_WORDS: Final[dict[FailureKind, str]] = {"target": "does not work with this model"}
_OPTIONAL_ADVICE: Final = (
    "Leave this setting off: the model runs without it. To use it, change the line that the message names."
)


def check(report: Report) -> Iterator[Finding]:
    """Yield one finding for each kind and message of failure."""
    failures: dict[tuple[FailureKind, str], list[ConfigRun]] = {}
    for run in report.runs:
        if run.failure is not None:
            failures.setdefault((run.failure.kind, run.failure.first_line), []).append(run)
    baseline = report.baseline()
    for (kind, line), runs in failures.items():
        is_optional = baseline is not None and not any(run.config.is_plain for run in runs)
        words = _OPTIONAL_WORDS.get(kind) if is_optional else None
        unused = any(run.failure.code == "unused_parameters" for run in runs if run.failure is not None)
        yield new_finding(
            severity=_severity(kind, is_measured=baseline is not None, is_optional=is_optional),
            title=f"{join_list([quoted_name(run) for run in runs])} {words or _FAILURE_WORDS[kind]}",
            explanation=f"{len(runs)} of {plural(len(report.runs), 'configuration')} "
            f"{'has' if len(runs) == 1 else 'have'} no samples: {line.rstrip('.') or 'the process left no message'}.",
            advice=_OPTIONAL_ADVICE if words else _UNUSED_ADVICE if unused else _ADVICE[kind],
            evidence=(
                Evidence(name="failed configurations", value=len(runs), unit="count"),
                *(Evidence(name="failure", value=kind, unit="text", where=run.config.name) for run in runs),
            ),
            weight=1.0 if baseline is None else len(runs) / len(report.runs),
        )


def _severity(kind: FailureKind, *, is_measured: bool, is_optional: bool) -> Severity:
    if kind == "interrupted":
        return "info"
    if not is_measured:
        return "high"
    return "low" if is_optional else "medium"


RULE = Rule("failed_runs", DOC, check, "runs")
