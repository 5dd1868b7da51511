"""A configuration whose two processes take different times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.pairs import measured_runs
from profiler_kit.diagnosis.phrases import join_list, join_sentences, limit_percent, quoted_name
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.statistics.noise import Noise, noise_of
from profiler_kit.units import percent, text

# On an idle device, two processes of one configuration differ by less than 1 %. Above this limit, gains of 5 % are uncertain.
MAX_GAP: Final = 0.03
# Two searches that choose the same algorithms differ by less, beyond the noise of the other configurations.
MIN_SEARCH_GAP: Final = 0.01

DOC = f"""
Fires if the two fresh processes of a configuration take different times.

- `low`: with `cudnn.benchmark=True`, their steps differ by more than {limit_percent(MIN_SEARCH_GAP)} plus the noise of the other
  configurations. The algorithm search times every algorithm once or twice, and it chose differently.
- `medium`: without benchmark, their steps differ by more than {limit_percent(MAX_GAP)}. The device is noisy, and the report
  does not claim smaller differences.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding for runs with benchmark, and one for runs without it."""
    noise = noise_of(report)
    repeated = [run for run in measured_runs(report) if noise.repeat_gap(run) is not None]
    gaps = [(run, noise.like_processes(run), noise.repeat_gap(run) or 0.0) for run in repeated]
    search_limit = MIN_SEARCH_GAP + (noise.gap or 0.0)
    by_search = [case for case in gaps if case[0].config.benchmark and case[2] > search_limit]
    by_noise = [case for case in gaps if not case[0].config.benchmark and case[2] > MAX_GAP]
    for cases in (by_search, by_noise):
        if cases:
            yield _finding(sorted(cases, key=lambda case: -case[2]), noise, by_search=cases is by_search)


def _finding(cases: list[tuple[ConfigRun, tuple[Interval, ...], float]], noise: Noise, *, by_search: bool) -> Finding:
    run, processes, gap = cases[0]
    times = " and ".join(text(step.median, "ns") for step in _extremes(processes))
    others = [f"{quoted_name(other)} ({percent(share)})" for other, _, share in cases[1:]]
    place = "machine" if run.clock == "operator" else "device"
    return new_finding(
        severity="low" if by_search else "medium",
        title=f"{'Unstable algorithm search' if by_search else f'Noisy {place}'}: two processes of {quoted_name(run)} differ by "
        f"{percent(gap)} ({times} per step)",
        explanation=join_sentences(
            "cudnn.benchmark times each algorithm once or twice and selects the fastest. Another algorithm that is almost as "
            "fast, or that fits into the free memory, may be selected in the next process."
            if by_search
            else "Both processes ran the same code on the same data.",
            noise.sentence() if by_search else "",
            f"The same holds for {join_list(others)}." if others else "",
        ),
        advice="Plan with the slower of the two: the choice of the next process cannot be predicted."
        if by_search
        else f"Stop other work on the {place} and run again.",
        evidence=tuple(
            Evidence(name="second process against first", value=100.0 * share, unit="percent", where=other.config.name)
            for other, _, share in cases
        ),
        weight=gap,
    )


def _extremes(processes: tuple[Interval, ...]) -> tuple[Interval, Interval]:
    """The fastest and the slowest process, the earlier one first."""
    fastest, slowest = (pick(processes, key=lambda step: step.median) for pick in (min, max))
    return (fastest, slowest) if processes.index(fastest) < processes.index(slowest) else (slowest, fastest)


RULE = Rule("two_processes", DOC, check, "reading")
