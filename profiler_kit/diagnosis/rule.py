"""What a rule is: a name, what it looks for, and a function from a report to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from profiler_kit.diagnosis.advice import UNTRIED, Attempt
from profiler_kit.records.report import Evidence, Finding, Report, Severity, TraceReport
from profiler_kit.units import Unit

Topic = Literal["runs", "place", "cause", "remedy", "reading", "memory", "note"]

# The order in which a reader asks: did it run at all; where does the step go; why; what was tried and helps; which figure
# misleads; what about memory; what else. A share of the peak or of a stopwatch's reading is no share of the step, so
# weights alone would put these side by side wrongly.
TOPICS: Final[tuple[Topic, ...]] = ("runs", "place", "cause", "remedy", "reading", "memory", "note")


@dataclass(frozen=True, slots=True)
class Rule:
    """One drop-in of `diagnosis/rules/`.

    `name` is the file's name and stands in every finding. `doc` is Markdown for people: what fires it, at which threshold,
    and what it does not say. `check` takes any report, also one without counts, without runs or with nothing but failures;
    it yields nothing where a number it needs is missing, and never raises. `topic` is which question it answers: among
    findings of one severity it comes before their weight. `check_trace` does for the traces that `inspect` read what `check`
    does for a report, where a trace holds the evidence; a rule about traces alone has `never` for `check`.
    """

    name: str
    doc: str
    check: Callable[[Report], Iterable[Finding]]
    topic: Topic = "note"
    check_trace: Callable[[TraceReport], Iterable[Finding]] | None = None

    def finding(
        self,
        *,
        severity: Severity,
        title: str,
        explanation: str,
        advice: str,
        evidence: Iterable[Evidence],
        paths: Iterable[str] = (),
        attempt: Attempt = UNTRIED,
        weight: float = 0.0,
        computed: bool = False,
    ) -> Finding:
        """A finding of this rule: each path once, `weight` cut to 0 to 1, with what came of trying its advice."""
        return Finding(
            rule=self.name,
            severity=severity,
            title=title,
            explanation=explanation,
            advice=advice,
            evidence=tuple(evidence),
            paths=tuple(dict.fromkeys(paths)),
            config=attempt.config,
            trial=attempt.trial,
            tries=attempt.tries,
            weight=min(1.0, max(0.0, weight)),
            computed=computed,
        )


def never(report: Report) -> Iterable[Finding]:
    """The check of a rule whose evidence stands in no report of measured runs."""
    return ()


def known(where: str, *measures: tuple[str, int | float | str | bool | None, Unit]) -> Iterator[Evidence]:
    """Those of `measures` (name, value, unit) whose value is not None, as evidence from `where`."""
    for name, value, unit in measures:
        if value is not None:
            yield Evidence(name=name, value=value, unit=unit, where=where)
