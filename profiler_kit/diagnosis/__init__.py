"""Report facts to findings: plain sentences, each with the numbers that fired it."""

from __future__ import annotations

from profiler_kit.diagnosis.registry import all_rules, rules_page
from profiler_kit.diagnosis.rule import TOPICS, Rule
from profiler_kit.records.report import SEVERITIES, Finding, Report, TraceReport

__all__ = ["all_rules", "diagnose", "diagnose_traces", "rules_page"]


def diagnose(report: Report) -> tuple[Finding, ...]:
    """All rules' findings on `report`, the gravest first; among equals by topic, then by the share they are about (`weight`).

    The topics come in the order a reader asks: where the step goes, why, what was tried and saves how much, which figure
    misleads, memory.
    """
    return _in_order([(rule, finding) for rule in all_rules() for finding in rule.check(report)])


def diagnose_traces(report: TraceReport) -> tuple[Finding, ...]:
    """The findings on traces of those rules that know what to look for in one, ordered as `diagnose` does."""
    rules = [(rule, rule.check_trace) for rule in all_rules()]
    return _in_order([(rule, finding) for rule, check in rules if check is not None for finding in check(report)])


def _in_order(found: list[tuple[Rule, Finding]]) -> tuple[Finding, ...]:
    found.sort(key=lambda pair: (SEVERITIES.index(pair[1].severity), TOPICS.index(pair[0].topic), -pair[1].weight))
    return tuple(finding for _, finding in found)
