"""The `Rule` class: a name, its documentation, and a function from a report or a trace to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from profiler_kit.diagnosis.advice import NO_TRIALS, AdviceTrials
from profiler_kit.diagnosis.phrases import Advice, advise
from profiler_kit.records.claims import Claim
from profiler_kit.records.report import Evidence, Finding, Remedy, Report, Severity, TraceReport, severity_after
from profiler_kit.units import Unit

Topic = Literal["runs", "place", "bound", "site", "cause", "remedy", "reading", "memory", "note"]

# The order of a reader's questions: did it run; where does the time go; which limit of the machine decides; why; which remedies
# help; which figure misleads; memory; notes. Weights alone cannot order findings, because a share of the memory peak is not a
# share of the step.
TOPICS: Final[tuple[Topic, ...]] = ("runs", "place", "bound", "site", "cause", "remedy", "reading", "memory", "note")
Measure = tuple[str, int | float | str | bool | None, Unit]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule in a file of `diagnosis/rules/`.

    `name`: part of every finding. `doc`: Markdown with the conditions, the thresholds and the limits of the
    rule. `check`: yields findings for what the rule `reads`: reports of targets, traces of `inspect`, or both. It accepts any
    report, also without counts, without runs or with failures only; it yields nothing if a number is missing, and never raises.
    `topic`: orders findings of one severity, before their weight.
    `keeps`: the part of the claimed time that the advice leaves, as `Finding.keeps`, where a finding does not know it itself.
    `needs_runs`: it finds nothing in a report that only counts.
    `states_share`: the titles of its findings state the weight, as a share of the step or of the peak.
    """

    name: str
    doc: str
    check: Callable[[Report], Iterable[Finding]] | Callable[[TraceReport], Iterable[Finding]]
    topic: Topic = "note"
    reads: Literal["reports", "traces", "both"] = "reports"
    states_share: bool = True
    keeps: float = 0.0
    needs_runs: bool = True

    def findings(self, report: Report | TraceReport) -> Iterator[Finding]:
        """Yield the findings on `report`; none for a report that the rule does not read."""
        if self.reads == ("traces" if isinstance(report, Report) else "reports"):
            return
        if self.needs_runs and isinstance(report, Report) and not report.runs:
            return
        check: Callable[..., Iterable[Finding]] = self.check
        for finding in check(report):
            yield replace(finding, rule=self.name, keeps=finding.keeps or self.keeps)


def new_finding(
    *,
    severity: Severity,
    title: str,
    explanation: str,
    advice: Advice | str,
    code: str = "",
    evidence: Iterable[Evidence],
    paths: Iterable[str] = (),
    trials: AdviceTrials = NO_TRIALS,
    weight: float = 0.0,
    computed: bool = False,
    claims: Iterable[Claim] = (),
    keeps: float = 0.0,
) -> Finding:
    """Return a finding with unique paths and `weight` clamped to 0 to 1. `Rule.findings` adds the name of the rule.

    `claims`: the parts of the step (or of the peak) of which the finding explains the share `weight`.
    `trials`: the configurations that try the advice, and their trials; without a gain, the severity is at most ``low``.
    `computed`: the gain is computed, not measured. `advice`: sentences; ``{code}`` in them is the line to paste, `code`.
    """
    advised = advice if isinstance(advice, Advice) else advise(advice, code)
    remedy = Remedy(setting=trials.config or "", code=advised.code, text=advised.action) if advised.text else None
    return Finding(
        rule="",
        severity=severity_after(severity, trials.trial if trials.tries else None),
        title=title,
        explanation=explanation,
        advice=advised.text,
        remedy=remedy,
        evidence=tuple(evidence),
        paths=tuple(dict.fromkeys(paths)),
        config=trials.config,
        trial=trials.trial,
        tries=trials.tries,
        weight=min(1.0, max(0.0, weight)),
        computed=computed,
        claims=tuple(dict.fromkeys(claims)),
        keeps=keeps,
    )


def evidence_of(where: str, *measures: Measure) -> Iterator[Evidence]:
    """Yield evidence from `where` for each of `measures` (name, value, unit) whose value is not None."""
    for name, value, unit in measures:
        if value is not None:
            yield Evidence(name=name, value=value, unit=unit, where=where)
