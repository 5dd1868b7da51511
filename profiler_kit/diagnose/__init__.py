"""Report facts to findings: plain sentences, each with the numbers that fired it."""

from __future__ import annotations

from profiler_kit.diagnose.registry import all_rules, rules_page
from profiler_kit.records.report import SEVERITIES, Finding, Report

__all__ = ["all_rules", "diagnose", "rules_page"]


def diagnose(report: Report) -> tuple[Finding, ...]:
    """All rules' findings on `report`, the gravest first; among equals the one that explains most of the step (`weight`)."""
    found = [finding for rule in all_rules() for finding in rule.check(report)]
    return tuple(sorted(found, key=lambda f: (SEVERITIES.index(f.severity), -f.weight)))
