"""Rules about a part of a step: a detector finds the part and says why it takes time, the rest of the finding is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from profiler_kit.diagnosis.advice import NO_TRIALS, AdviceTrials
from profiler_kit.diagnosis.phrases import Advice, join_sentences
from profiler_kit.diagnosis.rule import Rule, Topic, evidence_of
from profiler_kit.diagnosis.step_work import StepWork, step_works, worst_step
from profiler_kit.records.claims import Claim
from profiler_kit.records.report import Evidence, Finding, Report, Severity, TraceReport
from profiler_kit.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """A part of a step that has one cause.

    - `share`: its share of the step, and the name of this figure is `share_name`. `title`: states it.
    - `sentences`: why it takes time, without the name of the trace. Empty ones are left out.
    - `measures`: further evidence as name, value and unit. `evidence`: evidence from another place than the step.
    - `weight`: as in `Finding`, where it is not `share`. `code`, `claims`, `paths`, `trials`, `computed`: as in `Rule.finding`.
    """

    share: float
    severity: Severity
    title: str
    sentences: tuple[str, ...]
    advice: Advice | str
    claims: tuple[Claim, ...]
    code: str = ""
    share_name: str = "share of the step"
    measures: tuple[tuple[str, int | float | str | bool | None, Unit], ...] = ()
    evidence: tuple[Evidence, ...] = ()
    paths: tuple[str, ...] = ()
    trials: AdviceTrials = NO_TRIALS
    weight: float | None = None
    computed: bool = False


def step_rule(
    name: str,
    doc: str,
    find_part: Callable[[Report | TraceReport, StepWork], StepPart | None],
    topic: Topic = "cause",
    *,
    steps: Callable[[Report | TraceReport], Iterable[StepWork]] = step_works,
    states_share: bool = True,
    keeps: float = 0.0,
) -> Rule:
    """Return the rule that fires on the baseline of a report, or on the trace with the largest part that `find_part` finds."""

    def check(report: Report | TraceReport) -> Iterator[Finding]:
        worst = worst_step(steps(report), lambda step: find_part(report, step), lambda part: part.share)
        if worst is not None:
            step, part = worst.step, worst.match
            yield rule.finding(
                severity=part.severity,
                title=part.title,
                explanation=join_sentences(
                    f"{step.prefix}{part.sentences[0]}", *part.sentences[1:], worst.others_sentence()
                ),
                advice=part.advice,
                code=part.code,
                evidence=(
                    *evidence_of(step.name, (part.share_name, 100.0 * part.share, "percent"), *part.measures),
                    *part.evidence,
                ),
                paths=part.paths,
                trials=part.trials,
                weight=part.share if part.weight is None else part.weight,
                computed=part.computed,
                claims=part.claims,
            )

    rule = Rule(name, doc, check, topic, "both", states_share=states_share, keeps=keeps)
    return rule


def severity_of(share: float, *, high: float | None = None, medium: float = 0.0) -> Severity:
    """Return ``high`` from the share `high` on, ``medium`` from `medium` on, and ``low`` below."""
    if high is not None and share >= high:
        return "high"
    return "medium" if share >= medium else "low"
