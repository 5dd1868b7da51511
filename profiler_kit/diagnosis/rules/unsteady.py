"""A device that was held down, or a run whose steps changed while it was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.pairs import measured
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.words import listing, quoted, sentences, threshold
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent

# Halves of a steady run lie within 1 % of each other on an idle H100; three times that is a clock, or somebody else.
HALVES: Final = 0.03
# The median of fewer steps moves by more than the limit on its own.
LEAST_STEPS: Final = 16

DOC = f"""
The first half of a run's timed steps differs from the second by more than {threshold(HALVES)} of the median (at least
{LEAST_STEPS} steps), or the device held its clock down when they ended, by its own account (power, heat). `medium` where the
baseline is among them, otherwise `low`. Clock and temperature are said where they were read. Differences between these runs and
others may be the device's.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires at most once for drifting steps, and once for a clock that was held down."""
    runs = measured(report)
    drifting = [(run, drift) for run in runs if (drift := _drift(run)) is not None and abs(drift) > HALVES]
    if drifting:
        yield _drifted(report, sorted(drifting, key=lambda item: -abs(item[1])))
    held = [run for run in runs if _reasons(run)]
    if held:
        yield _held(report, held)


def _drift(run: ConfigRun) -> float | None:
    """By how much the second half's median lies above the first half's, as a share of it."""
    steps = run.steps_ns
    if len(steps) < LEAST_STEPS:
        return None
    first, second = (statistics.median(half) for half in (steps[: len(steps) // 2], steps[len(steps) // 2 :]))
    return (second - first) / first if first > 0 else None


def _reasons(run: ConfigRun) -> tuple[str, ...]:
    return run.device_state.throttled_by if run.device_state is not None else ()


def _drifted(report: Report, found: list[tuple[ConfigRun, float]]) -> Finding:
    run, drift = found[0]
    others = [quoted(other) for other, _ in found[1:]]
    return RULE.finding(
        severity="medium" if any(one is report.baseline() for one, _ in found) else "low",
        title=f"The steps of {quoted(run)} changed while they were measured, by {percent(abs(drift))}",
        explanation=sentences(
            f"The second half of its {len(run.steps_ns)} timed steps takes {percent(abs(drift))} "
            f"{'more' if drift > 0 else 'less'} than the first.",
            _state(run),
            f"The same holds for {listing(others)}." if others else "",
        ),
        advice="Run again with nothing else on the device. If it stays so, let it warm up longer, or lock its clock.",
        evidence=tuple(
            Evidence(name="second half against first", value=100.0 * share, unit="percent", where=one.config.name)
            for one, share in found
        ),
        weight=abs(drift),
    )


def _state(run: ConfigRun) -> str:
    state = run.device_state
    if state is None or (state.sm_clock_hz is None and state.temperature_celsius is None):
        return ""
    clock = f"a clock of {state.sm_clock_hz / 1e6:,.0f} MHz" if state.sm_clock_hz is not None else ""
    heat = f"{state.temperature_celsius} degrees Celsius" if state.temperature_celsius is not None else ""
    return f"Right after them the device was at {listing([part for part in (clock, heat) if part])}."


def _held(report: Report, runs: list[ConfigRun]) -> Finding:
    reasons = list(dict.fromkeys(reason for run in runs for reason in _reasons(run)))
    return RULE.finding(
        severity="medium" if report.baseline() in runs else "low",
        title=f"The device held its clock down in {listing([quoted(run) for run in runs])}: {listing(reasons)}",
        explanation=sentences(
            f"Right after the timed steps it gave {listing(reasons)} as the reason.",
            _state(runs[0]),
            "A configuration that works the device harder is then slowed down more.",
        ),
        advice="Cool the device, raise its power limit, or lock its clock below what it can hold; then run again.",
        evidence=(
            *(piece for r in runs for piece in known(r.config.name, ("held down by", ", ".join(_reasons(r)), "text"))),
            *(
                piece
                for run in runs
                if run.device_state is not None
                for piece in known(run.config.name, ("clock", run.device_state.sm_clock_hz, "count"))
            ),
        ),
    )


RULE = Rule("unsteady", DOC, check, "reading")
