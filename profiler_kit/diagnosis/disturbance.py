"""Findings about time on the host while other work, or too many threads, took its cores.

A step that waits for a core looks like one that waits for Python: the load lengthens both the idle time of a device and the time
outside operators. Such findings are kept with less weight, and say so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from profiler_kit.diagnosis.phrases import join_sentences
from profiler_kit.records.claims import HOST_CAUSES
from profiler_kit.records.report import Finding, Report, Severity
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.host_load import disturbance_of
from profiler_kit.units import percent

# The profiler lengthens a step. Timed steps that take longer than traced ones by this factor were slowed down by something else.
MAX_TIMED_FACTOR: Final = 2.0
_LESS_SEVERE: Final[dict[Severity, Severity]] = {"high": "medium", "medium": "low"}


def is_disturbed(run: ConfigRun) -> bool:
    """Whether other work or too many threads may decide the length of the run's timed steps."""
    disturbance = disturbance_of(run)
    return (disturbance is not None and disturbance.is_large) or timed_factor(run) >= MAX_TIMED_FACTOR


def timed_factor(run: ConfigRun) -> float:
    """The timed step over the traced one on a CPU; 0 without both."""
    if run.clock != "operator" or not run.span_ns or run.step_ns is None:
        return 0.0
    return run.step_ns.median / run.span_ns


def with_doubt(report: Report, finding: Finding) -> Finding:
    """`finding`; less severe, with the reason, if it is about the host or threads and the baseline's host was disturbed."""
    run = report.baseline()
    disturbance = disturbance_of(run) if run is not None else None
    is_about_threads = "threads=" in (finding.config or "")
    if disturbance is None or not disturbance.is_large:
        return finding
    if not is_about_threads and not any(
        claim.covers("cause", cause) for claim in finding.claims for cause in HOST_CAUSES
    ):
        return finding
    doubt = (
        f"Threads of the process waited for a core for {percent(disturbance.waiting_share)} of their time (rule busy_host), so "
        f"{'the gain' if is_about_threads else 'the share'} is smaller on a free host."
    )
    severity = _LESS_SEVERE.get(finding.severity, finding.severity)
    return replace(finding, severity=severity, explanation=join_sentences(finding.explanation, doubt))
