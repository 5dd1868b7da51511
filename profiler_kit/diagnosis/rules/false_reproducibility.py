"""Runs that repeat within a process, and give other bits in a fresh one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from profiler_kit.diagnosis.advice import attempt
from profiler_kit.diagnosis.bits import Part, only_within
from profiler_kit.diagnosis.pairs import measured
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.words import listing, quoted, sentences
from profiler_kit.records.laboratory import Repeat
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import ConfigRun

DOC = """
Three passes of one process gave the same bits, and a fresh process of the same configuration gave other ones, from the same
seed: `low`, `medium` where `cudnn.deterministic=True` was set, `info` where only the loss's value differs (some losses do not
repeat by themselves). Outputs, loss and gradients are compared apart. With
`cudnn.benchmark=True` the search may end with another algorithm next time, also among the deterministic ones; without it,
a choice that depends on free memory, or a seeded start that is none. One finding for runs with benchmark, one for those without.
"""


@dataclass(frozen=True, slots=True)
class _Case:
    """A run, its second process, and what differs between them."""

    first: ConfigRun
    second: ConfigRun | Repeat
    parts: tuple[Part, ...]


def check(report: Report) -> Iterator[Finding]:
    """Fires at most once for runs with benchmark, and once for those without."""
    cases = [case for run in measured(report) if (case := _case(report, run)) is not None]
    for benchmark in (True, False):
        found = [case for case in cases if (case.first.config.benchmark is True) is benchmark]
        if found:
            yield _finding(report, found, benchmark=benchmark)


def _case(report: Report, run: ConfigRun) -> _Case | None:
    again = next((r for r in report.runs if r.config.repeat_of == run.config.name and r.failure is None), None)
    second = again or (run.repeat if run.repeat is not None and run.repeat.failure is None else None)
    parts = only_within(run, second) if second is not None else ()
    return _Case(run, second, parts) if second is not None and parts else None


def _finding(report: Report, cases: list[_Case], *, benchmark: bool) -> Finding:
    first = cases[0].first
    names = listing([quoted(case.first) for case in cases], most=3)
    parts = listing(list(dict.fromkeys(part.name for case in cases for part in case.parts)))
    strict = any(case.first.config.deterministic is True for case in cases)
    verb = "repeats" if len(cases) == 1 else "repeat"
    tried = attempt(report, first, ("deterministic",) if first is report.baseline() and not benchmark else ())
    return RULE.finding(
        severity="info" if parts == "loss" else "medium" if strict else "low",
        title=f"{names} {verb} within a process, but two processes give different {parts}",
        explanation=sentences(
            "Within one process three passes gave the same bits. A second, fresh process of the same configuration, "
            "from the same seed, gave other ones.",
            "cudnn.benchmark times each algorithm once or twice, so that another one may win in the next process."
            if benchmark
            else "The algorithms, or the seeded start itself, were not the same.",
            "cudnn.deterministic=True does not prevent that: each algorithm repeats itself, but not the others."
            if benchmark and strict
            else "",
        ),
        advice="Do not take equal results within one run for reproducibility. "
        + (
            "Leave cudnn.benchmark at False where results have to be the same in the next run."
            if benchmark
            else "Set cudnn.deterministic, and seed everything that draws random numbers when the model is built."
        ),
        evidence=tuple(
            piece
            for case in cases
            for part in case.parts
            for which, run in (("first", case.first), ("second", case.second))
            for piece in known(
                case.first.config.name, (f"{part.name} digest, {which} process", part.digest(run), "text")
            )
        ),
        attempt=tried,
    )


RULE = Rule("false_reproducibility", DOC, check)
