"""Turn the facts of a report into findings: a problem, the numbers that show it, and advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from profiler_kit.diagnosis.disturbance import with_doubt
from profiler_kit.diagnosis.ranking import rank
from profiler_kit.diagnosis.recorded import readable_traces
from profiler_kit.diagnosis.registry import all_rules
from profiler_kit.diagnosis.rule import TOPICS, Rule
from profiler_kit.diagnosis.step_savings import StepSavings
from profiler_kit.diagnosis.step_work import all_steps
from profiler_kit.diagnosis.verdict import verdict
from profiler_kit.records.report import SEVERITIES, Finding, Report, TraceReport

if TYPE_CHECKING:
    from profiler_kit.simulation.step_model import StepModel

__all__ = ["all_rules", "diagnose", "diagnose_traces", "verdict"]


def diagnose(report: Report, models: Mapping[str, StepModel] = MappingProxyType({})) -> tuple[Finding, ...]:
    """Return the findings of all rules on `report`, ordered by the share of the step that they explain.

    Findings that explain about the same, or nothing, are ordered by severity, then topic (`TOPICS`), then `weight`. With the
    model of the baseline in `models`, findings are ordered by what a step would save.
    """
    pairs = [(rule, with_doubt(report, finding)) for rule in all_rules() for finding in rule.findings(report)]
    run = report.baseline()
    model = models.get(run.config.name) if run is not None else None
    return _ranked(report, pairs, [model] if model is not None else [])


def diagnose_traces(report: TraceReport, models: Sequence[StepModel] = ()) -> tuple[Finding, ...]:
    """Return the findings of all rules that read traces, in the order of `diagnose`; none if kernels were replayed.

    With `models` of the traces, findings are ordered by what a step would save.

    Only rules about the recording itself (topic ``runs``) read a trace that lacks the work of the device.
    """
    if any(trace.hardware_counters for trace in report.traces):
        return ()  # replays take most of the time
    readable = readable_traces(report)
    pairs = [
        (rule, finding)
        for rule in all_rules()
        for finding in rule.findings(report if rule.topic == "runs" else readable)
    ]
    return _ranked(readable, pairs, models)


def _ranked(
    report: Report | TraceReport, pairs: list[tuple[Rule, Finding]], models: Sequence[StepModel]
) -> tuple[Finding, ...]:
    topics = {rule.name: rule.topic for rule, _ in pairs}
    sites = (site for step in all_steps(report) for site in step.trace.sites)
    return rank(
        report, _sorted_findings(pairs), savings=StepSavings(models, sites, topics) if models else None, topics=topics
    )


def _sorted_findings(findings: list[tuple[Rule, Finding]]) -> tuple[Finding, ...]:
    findings.sort(key=lambda pair: (SEVERITIES.index(pair[1].severity), TOPICS.index(pair[0].topic), -pair[1].weight))
    return tuple(finding for _, finding in findings)
