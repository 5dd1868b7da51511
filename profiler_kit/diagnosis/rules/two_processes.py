"""A configuration that takes another time in its second process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.pairs import measured
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.words import listing, quoted, sentences, threshold
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.statistics.noise import FLOOR, Noise, noise_of
from profiler_kit.units import percent, text

# Processes of one configuration lie within 1 % on an idle device; past this, gains of 5 % can no longer be told.
NOISY: Final = 0.03

DOC = f"""
Every configuration runs in two fresh processes. With `cudnn.benchmark=True` their steps differ by more than the noise of the
others and {threshold(FLOOR)}: the search, which times every algorithm once or twice, chose otherwise (`low`). Without benchmark
they differ by more than {threshold(NOISY)}: the device is not quiet, and nothing smaller than that is claimed (`medium`).
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires at most once for runs with benchmark, and once for those without."""
    noise = noise_of(report)
    both = [(run, second) for run in measured(report) if (second := noise.second(run)) is not None]
    gaps = [(run, second, noise.own_gap(run) or 0.0) for run, second in both]
    searched = [case for case in gaps if case[0].config.benchmark and case[2] > noise.limit()]
    noisy = [case for case in gaps if not case[0].config.benchmark and case[2] > NOISY]
    for found in (searched, noisy):
        if found:
            yield _finding(sorted(found, key=lambda case: -case[2]), noise, searched=found is searched)


def _finding(found: list[tuple[ConfigRun, Interval, float]], noise: Noise, *, searched: bool) -> Finding:
    run, second, gap = found[0]
    times = f"{text(run.step_ns.median if run.step_ns is not None else None, 'ns')} and {text(second.median, 'ns')}"
    others = [f"{quoted(other)} ({percent(share)})" for other, _, share in found[1:]]
    return RULE.finding(
        severity="low" if searched else "medium",
        title=f"Two processes of {quoted(run)} differ by {percent(gap)}: {times} a step"
        + (", as the search chose otherwise" if searched else ""),
        explanation=sentences(
            "cudnn.benchmark times each algorithm once or twice and keeps the fastest: one that is nearly as fast, or that fits "
            "into what memory is free, may win the next time."
            if searched
            else f"The same code on the same data, twice: no difference below {percent(gap)} is claimed in this report.",
            noise.sentence() if searched else "",
            f"So it is with {listing(others)}." if others else "",
        ),
        advice="Count on the slower of the two: what the next process gets is not known before."
        if searched
        else "Run again with nothing else on the device.",
        evidence=tuple(
            Evidence(name="second process against first", value=100.0 * share, unit="percent", where=one.config.name)
            for one, _, share in found
        ),
        weight=gap,
    )


RULE = Rule("two_processes", DOC, check, "reading")
