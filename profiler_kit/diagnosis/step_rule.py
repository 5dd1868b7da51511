"""Rules about a part of a step: a detector finds the part and says why it takes time, the rest of the finding is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from profiler_kit.diagnosis.advice import NO_TRIALS, AdviceTrials
from profiler_kit.diagnosis.phrases import Advice, join_sentences
from profiler_kit.diagnosis.rule import Measure, Rule, Topic, evidence_of, new_finding
from profiler_kit.diagnosis.step_work import StepWork, step_works, worst_step
from profiler_kit.records.claims import Claim
from profiler_kit.records.report import SEVERITIES, Evidence, Finding, Report, Severity, TraceReport
from profiler_kit.units import percent

_NAMES: Final[tuple[Severity, ...]] = ("low", "medium", "high")


@dataclass(frozen=True, slots=True)
class Shares:
    """From which share of the step on a part has a finding, and from which on it is `medium` or `high`.

    `of`: what the shares are parts of, in words. `least` 0: the detector decides.
    """

    least: float
    medium: float | None = None
    high: float | None = None
    of: str = "the step"

    def severity(self, share: float) -> Severity:
        """Return the severity of a share."""
        if self.high is not None and share >= self.high:
            return "high"
        return "medium" if share >= (self.least if self.medium is None else self.medium) else "low"

    def sentence(self) -> str:
        """Return the limits: ``Of the step: `low` from 10 % on, `medium` from 20 % on.``"""
        limits = (
            self.least if self.medium is not None else None,
            self.least if self.medium is None else self.medium,
            self.high,
        )
        named = [(name, limit) for name, limit in zip(_NAMES, limits, strict=True) if limit is not None]
        parts = [f"`{name}` from {100.0 * limit:.3g} % on" if limit else f"`{name}`" for name, limit in named]
        return f"Share of {self.of}: {', '.join(parts)}." if self != Shares(0.0) else "At most `medium`."


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """A part of a step that has one cause.

    - `ns`: its time, which decides its share of the step; `share`: where it is another one. `share_name`: its name
      as evidence; empty for none.
    - `what`: the start of the title, which the share follows: ``Copies take``; or `title`: all of it.
    - `sentences`: why it takes time, without the name of the trace. Empty ones are left out. `lead`: what holds for any trace.
    - `measures`: further evidence. `evidence`: that from another place than the step.
    - `weight`: as in `Finding`, where it is not the share. `least`, `most`: limits of the severity.
    - `code`, `claims`, `paths`, `trials`, `computed`: as in `new_finding`. `keeps`: as in `Finding`; 0 for that of the rule.
    """

    ns: float = 0.0
    share: float | None = None
    what: str = ""
    title: str = ""
    lead: str = ""
    sentences: tuple[str, ...]
    advice: Advice | str
    claims: tuple[Claim, ...]
    code: str = ""
    share_name: str = "share of the step"
    measures: tuple[Measure, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    paths: tuple[str, ...] = ()
    trials: AdviceTrials = NO_TRIALS
    weight: float | None = None
    least: Severity = "info"
    most: Severity = "high"
    computed: bool = False
    keeps: float = 0.0


def step_rule(
    name: str,
    find_part: Callable[[Report | TraceReport, StepWork], StepPart | None],
    shares: Shares,
    doc: str,
    *,
    topic: Topic = "cause",
    steps: Callable[[Report | TraceReport], Iterable[StepWork]] = step_works,
    states_share: bool = True,
    keeps: float = 0.0,
    needs_runs: bool = True,
    reads: Literal["traces", "both"] = "both",
) -> Rule:
    """Return the rule that fires on the baseline of a report, or on the trace with the largest part that `find_part` finds."""

    def find(report: Report | TraceReport, step: StepWork) -> tuple[float, StepPart] | None:
        if (part := find_part(report, step)) is None:
            return None
        share = step.share(part.ns) if part.share is None else part.share
        return (share, part) if share >= shares.least else None

    def check(report: Report | TraceReport) -> Iterator[Finding]:
        worst = worst_step(steps(report), lambda step: find(report, step), lambda match: match[0])
        if worst is not None:
            yield step_finding(worst.step, *worst.match, shares, worst.others_sentence())

    sources = "The rule reads reports and traces." if reads == "both" else ""
    text = f"{doc.strip()}\n\n{shares.sentence()} {sources}".rstrip() + "\n"
    return Rule(name, text, check, topic, reads, states_share, keeps, needs_runs)


def step_finding(step: StepWork, share: float, part: StepPart, shares: Shares, others: str = "") -> Finding:
    """Return the finding about `part`, which is `share` of `step`. `others`: a sentence about other steps."""
    severity = min(shares.severity(share), part.least, key=SEVERITIES.index)
    return new_finding(
        severity=max(severity, part.most, key=SEVERITIES.index),
        title=part.title or f"{part.what} {percent(share)} of the {step.facts.whole}",
        explanation=join_sentences(part.lead, f"{step.prefix}{part.sentences[0]}", *part.sentences[1:], others),
        advice=part.advice,
        code=part.code,
        evidence=(
            *evidence_of(
                step.name, (part.share_name, 100.0 * share if part.share_name else None, "percent"), *part.measures
            ),
            *part.evidence,
        ),
        paths=part.paths,
        trials=part.trials,
        weight=share if part.weight is None else part.weight,
        computed=part.computed,
        claims=part.claims,
        keeps=part.keeps,
    )
