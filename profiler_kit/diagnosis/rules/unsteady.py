"""Steps that changed during the measurement, or a device that throttled its clock."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.disturbance import MAX_TIMED_FACTOR, timed_factor
from profiler_kit.diagnosis.pairs import measured_runs
from profiler_kit.diagnosis.phrases import factor_text, join_list, join_sentences, limit_percent, quoted_name
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

# On an idle H100 the two halves of a run differ by less than 1 %. A larger drift comes from the clock, or from other work.
MAX_DRIFT: Final = 0.03
# The median of fewer steps varies by more than the limit.
MIN_STEPS: Final = 16
# The profiler makes a step of short operators up to three times as long. More comes from other work on the machine.
MAX_TRACED_FACTOR: Final = 4.0

DOC = f"""
Fires if the median of the second half of a run's timed steps differs from that of the first half by more than
{limit_percent(MAX_DRIFT)} (with at least {MIN_STEPS} steps), if the device reports a throttled clock after these steps (power,
heat), or if the traced steps of the baseline on a CPU take more than {MAX_TRACED_FACTOR:g} times as long as the timed ones, or
the timed ones at least {MAX_TIMED_FACTOR:g} times as long as the traced ones.

- `medium`: the baseline is affected.
- `low`: only other runs are affected.

The finding gives clock and temperature, if the report has them. Differences between these runs and others may come from the
device.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding for drifting steps, and one for a throttled clock."""
    runs = measured_runs(report)
    drifting = [(run, drift) for run in runs if (drift := _drift(run)) is not None and abs(drift) > MAX_DRIFT]
    if drifting:
        yield _drift_finding(report, sorted(drifting, key=lambda item: -abs(item[1])))
    throttled = [run for run in runs if _reasons(run)]
    if throttled:
        yield _throttle_finding(report, throttled)
    run = report.baseline()
    if run is None or run.clock != "operator" or not run.span_ns or run.step_ns is None:
        return
    if run.span_ns > MAX_TRACED_FACTOR * run.step_ns.median or timed_factor(run) >= MAX_TIMED_FACTOR:
        yield _traced_finding(run, run.span_ns, run.step_ns.median)


def _traced_finding(run: ConfigRun, traced_ns: int, timed_ns: int) -> Finding:
    slow, fast = ("traced", "timed") if traced_ns > timed_ns else ("timed", "traced")
    factor = factor_text(max(traced_ns, timed_ns) / min(traced_ns, timed_ns))
    return new_finding(
        severity="medium",
        title=f"Unsteady measurement: the {slow} steps of {quoted_name(run)} took {factor} the {fast} ones",
        explanation=join_sentences(
            f"A traced step took {text(traced_ns, 'ns')}, a timed one {text(timed_ns, 'ns')}.",
            "The profiler alone does not slow a step down as much, and the shares of operators and layers are uncertain."
            if slow == "traced"
            else "The profiler makes a step longer, not shorter: other work slowed the timed steps down, and the time outside "
            "operators is uncertain.",
        ),
        advice="Stop other work on the machine and run again.",
        evidence=evidence_of(run.config.name, ("traced step", traced_ns, "ns"), ("median step", timed_ns, "ns")),
    )


def _drift(run: ConfigRun) -> float | None:
    """Return the change from the median of the first half of the steps to that of the second half, as a share."""
    steps = run.steps_ns
    if len(steps) < MIN_STEPS:
        return None
    first, second = (statistics.median(half) for half in (steps[: len(steps) // 2], steps[len(steps) // 2 :]))
    return (second - first) / first if first > 0 else None


def _reasons(run: ConfigRun) -> tuple[str, ...]:
    return run.device_state.throttled_by if run.device_state is not None else ()


def _drift_finding(report: Report, drifting: list[tuple[ConfigRun, float]]) -> Finding:
    run, drift = drifting[0]
    others = [quoted_name(other) for other, _ in drifting[1:]]
    place = "machine" if run.clock == "operator" else "device"
    return new_finding(
        severity="medium" if any(other is report.baseline() for other, _ in drifting) else "low",
        title=f"Unsteady measurement: the steps of {quoted_name(run)} changed by {percent(abs(drift))}",
        explanation=join_sentences(
            f"The second half of the {len(run.steps_ns)} timed steps takes {percent(abs(drift))} "
            f"{'more' if drift > 0 else 'less'} time than the first half.",
            _device_state(run),
            f"The same holds for {join_list(others)}." if others else "",
        ),
        advice=f"Stop other work on the {place} and run again. If the steps still change, lock the clock or use more warm-up.",
        evidence=tuple(
            Evidence(name="second half against first", value=100.0 * share, unit="percent", where=other.config.name)
            for other, share in drifting
        ),
        weight=abs(drift),
    )


def _device_state(run: ConfigRun) -> str:
    state = run.device_state
    if state is None or (state.sm_clock_hz is None and state.temperature_celsius is None):
        return ""
    clock = f"a clock of {state.sm_clock_hz / 1e6:,.0f} MHz" if state.sm_clock_hz is not None else ""
    temperature = f"{state.temperature_celsius} degrees Celsius" if state.temperature_celsius is not None else ""
    return f"Right after the steps, the device had {join_list([part for part in (clock, temperature) if part])}."


def _throttle_finding(report: Report, runs: list[ConfigRun]) -> Finding:
    reasons = list(dict.fromkeys(reason for run in runs for reason in _reasons(run)))
    return new_finding(
        severity="medium" if report.baseline() in runs else "low",
        title=f"The device throttled its clock in {join_list([quoted_name(run) for run in runs])}: {join_list(reasons)}",
        explanation=join_sentences(
            f"Right after the timed steps, the device reported {join_list(reasons)}.",
            _device_state(runs[0]),
            "Throttling slows configurations with a higher load down more than others.",
        ),
        advice="Cool the device, raise its power limit, or lock its clock at a lower frequency. Then run again.",
        evidence=(
            *(
                piece
                for r in runs
                for piece in evidence_of(r.config.name, ("throttled by", ", ".join(_reasons(r)), "text"))
            ),
            *(
                piece
                for run in runs
                if run.device_state is not None
                for piece in evidence_of(run.config.name, ("clock", run.device_state.sm_clock_hz, "count"))
            ),
        ),
    )


RULE = Rule("unsteady", DOC, check, "reading")
