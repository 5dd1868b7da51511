"""A measurement that other work, the clock or too many threads disturbed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.disturbance import MAX_TIMED_FACTOR, timed_factor
from profiler_kit.diagnosis.pairs import measured_runs
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    factor_text,
    join_list,
    join_sentences,
    limit_percent,
    plural,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.records.report import Evidence, Finding, Report, Severity
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.host_load import (
    MAX_THROTTLED_SHARE,
    MAX_WAITING_SHARE,
    MIN_OTHER_CORES,
    Disturbance,
    disturbance_of,
    host_loads,
)
from profiler_kit.units import percent, text

# On an idle H100 the two halves of a run differ by less than 1 %. A larger drift comes from the clock, or from other work.
MAX_DRIFT: Final = 0.03
# The median of fewer steps varies by more than the limit.
MIN_STEPS: Final = 16
# The profiler makes a step of short operators up to three times as long. More comes from other work on the machine.
MAX_TRACED_FACTOR: Final = 4.0


def _unsteady(report: Report) -> Iterator[Finding]:
    """Yield at most one finding for drifting steps, and one for a throttled clock."""
    runs = measured_runs(report)
    drifting = [(run, drift) for run in runs if (drift := _drift(run)) is not None and abs(drift) > MAX_DRIFT]
    if drifting:
        yield _drift_finding(report, sorted(drifting, key=lambda item: -abs(item[1])))
    throttled = [run for run in runs if _reasons(run)]
    if throttled:
        yield _throttle_finding(report, throttled)
    run = report.baseline()
    if run is None or run.clock != "operator" or not run.span_ns or run.step_ns is None or not run.step_ns.median:
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


UNSTEADY = Rule(
    "unsteady",
    f"""
Fires if the median of the second half of a run's timed steps differs from that of the first half by more than
{limit_percent(MAX_DRIFT)} (with at least {MIN_STEPS} steps), if the device reports a throttled clock after these steps (power,
heat), or if the traced steps of the baseline on a CPU take more than {MAX_TRACED_FACTOR:g} times as long as the timed ones, or
the timed ones at least {MAX_TIMED_FACTOR:g} times as long as the traced ones.

- `medium`: the baseline is affected.
- `low`: only other runs are affected.

The finding gives clock and temperature, if the report has them. Differences between these runs and others may come from the
device.
""",
    _unsteady,
    "reading",
)


# Of the machine's cores. Work on this many cores shares caches and lowers clocks, even if no thread waits for it.
MAX_OTHER_SHARE: Final = 0.5
# A core that changes its clock by more changes a step that waits for the host as much.
MAX_CLOCK_CHANGE: Final = 0.10
# The same by a fixed piece of Python, which other work on the core lengthens too.
MAX_SPEED_CHANGE: Final = 0.20
# A device's clock changes a step that its kernels fill as much.
MAX_SM_CLOCK_CHANGE: Final = 0.05
# The time of other work is counted in ticks of 10 ms per core.
MIN_WALL_NS: Final = 100_000_000


_STOP: Final = "Stop other work on the machine and run again."


def _busy_host(report: Report) -> Iterator[Finding]:
    """Yield at most one finding for cores that were not free, and one for changing clocks."""
    runs = [(run, disturbance) for run in measured_runs(report) if (disturbance := disturbance_of(run)) is not None]
    if not runs:
        return
    disturbed = [
        (run, disturbance) for run, disturbance in runs if disturbance.is_large or _is_crowded(run, disturbance)
    ]
    if disturbed:
        disturbed.sort(
            key=lambda pair: (not pair[1].is_large, pair[0] is not report.baseline(), -pair[1].waiting_share)
        )
        yield _finding(report, disturbed)
    changed = [(run, kind, change) for run, _ in runs for kind, change in _clock_changes(run)]
    if changed:
        yield _clock_finding(sorted(changed, key=lambda item: -abs(item[2])))


def _is_crowded(run: ConfigRun, disturbance: Disturbance) -> bool:
    wall_ns = sum(load.wall_ns for load in host_loads(run))
    return (
        disturbance.other_cores is not None
        and disturbance.machine_cores is not None
        and wall_ns >= MIN_WALL_NS
        and disturbance.other_cores >= MAX_OTHER_SHARE * disturbance.machine_cores
    )


def _finding(report: Report, disturbed: list[tuple[ConfigRun, Disturbance]]) -> Finding:
    run, disturbance = disturbed[0]
    severity: Severity = "medium" if any(r is report.baseline() and d.is_large for r, d in disturbed) else "low"
    others = [quoted_name(other) for other, _ in disturbed[1:]]
    return new_finding(
        severity=severity,
        title=_title(run, disturbance),
        explanation=join_sentences(
            f"During the timed steps of {quoted_name(run)}:",
            _facts(run, disturbance),
            f"The same holds for {join_list(others)}." if others else "",
            "The time of the step, its shares on the host, and small differences between configurations are uncertain."
            if disturbance.is_large
            else "Shared caches and lower clocks may lengthen steps.",
        ),
        advice=_advice(run, disturbance, has_loader=report.target.has_loader),
        evidence=tuple(
            piece
            for other, load in disturbed
            for piece in evidence_of(
                other.config.name,
                ("time waiting for a core", 100.0 * load.waiting_share, "percent"),
                ("cores used by other work", _rounded(load.other_cores), "text"),
                ("time with a thread waiting", _hundredfold(load.contended_share), "percent"),
                ("time stopped by a CPU limit", 100.0 * load.throttled_share or None, "percent"),
            )
        ),
        weight=max(disturbance.waiting_share, disturbance.throttled_share),
    )


def _hundredfold(share: float | None) -> float | None:
    return 100.0 * share if share is not None else None


def _rounded(cores: float | None) -> str | None:
    return f"{cores:.2f}" if cores is not None else None


def _title(run: ConfigRun, disturbance: Disturbance) -> str:
    if disturbance.throttled_share >= MAX_THROTTLED_SHARE:
        share = percent(disturbance.throttled_share)
        return f"Limited CPU: a limit of the container stopped the process for {share} of the steps"
    if disturbance.waiting_share < MAX_WAITING_SHARE:
        return f"Busy host: other work used {_cores(disturbance)} while steps were timed"
    if disturbance.is_foreign:
        return (
            f"Busy host: other work used {_cores(disturbance)}, and the process waited for a core for "
            f"{percent(disturbance.waiting_share)} of its time"
        )
    count = _ranks_here(run)
    threads = f"those of the {count} ranks on its machine" if count > 1 else "its own threads"
    return f"Too many threads: the process waited for {threads} for {percent(disturbance.waiting_share)} of its time"


def _ranks_here(run: ConfigRun) -> int:
    """Return the number of ranks on the machine of rank 0; 1 without ranks."""
    return max(1, sum(rank.host == run.ranks[0].host for rank in run.ranks))


def _cores(disturbance: Disturbance) -> str:
    total = f" of {plural(disturbance.machine_cores, 'core')}" if disturbance.machine_cores is not None else " cores"
    return f"{disturbance.other_cores or 0.0:.1f}{total}"


def _facts(run: ConfigRun, disturbance: Disturbance) -> str:
    cores = host_loads(run)[0].cores
    parts = [
        f"threads of the process waited for a core for {percent(disturbance.waiting_share)} of the time in which they could run",
        f"other work used {_cores(disturbance)}" if disturbance.other_cores is not None else "",
        f"more threads were ready to run than cores were free for {percent(disturbance.contended_share)} of the time"
        if disturbance.contended_share is not None
        else "",
        f"a CPU limit stopped it for {percent(disturbance.throttled_share)} of the time"
        if disturbance.throttled_share
        else "",
    ]
    return f"{join_list([part for part in parts if part])}. The process may use {plural(cores, 'core')}."


def _advice(run: ConfigRun, disturbance: Disturbance, *, has_loader: bool) -> Advice:
    cores = host_loads(run)[0].cores
    if disturbance.throttled_share >= MAX_THROTTLED_SHARE:
        return advise(
            "Raise the CPU limit of the container, or use fewer threads: {code}.",
            f"torch.set_num_threads({max(1, cores // 2)})",
        )
    if disturbance.is_foreign or disturbance.waiting_share < MAX_WAITING_SHARE:
        return Advice(_STOP)
    count = _ranks_here(run)
    threads = f"OMP_NUM_THREADS={max(1, cores // count)}" if count > 1 else "torch.set_num_threads(N)"
    place = " for each rank" if count > 1 else ""
    workers = ", and fewer DataLoader workers" if has_loader else ""
    return advise(f"Use at most {plural(cores, 'thread')} in all: {{code}}{place}{workers}.", threads)


def _clock_changes(run: ConfigRun) -> Iterator[tuple[str, float]]:
    """Yield the largest change of the core's clock, and that of the device's, as shares, where they exceed their limits."""
    changes = [
        load.end_clock_hz / load.start_clock_hz - 1.0
        for load in host_loads(run)
        if load.start_clock_hz and load.end_clock_hz
    ]
    speeds = [
        load.start_loop_ns / load.end_loop_ns - 1.0
        for load in host_loads(run)
        if load.start_loop_ns and load.end_loop_ns and not load.start_clock_hz
    ]
    largest = max(changes, key=abs, default=0.0)
    if abs(largest) >= MAX_CLOCK_CHANGE:
        yield "core", largest
    speed = max(speeds, key=abs, default=0.0)
    if abs(speed) >= MAX_SPEED_CHANGE:
        yield "core (by a fixed piece of Python)", speed
    state = run.device_state
    if state is not None and state.start_sm_clock_hz and state.sm_clock_hz:
        change = state.sm_clock_hz / state.start_sm_clock_hz - 1.0
        if abs(change) >= MAX_SM_CLOCK_CHANGE:
            yield "device", change


def _clock_finding(changed: list[tuple[ConfigRun, str, float]]) -> Finding:
    run, kind, change = changed[0]
    others = [f"{quoted_name(other)} ({part}, {100.0 * share:+.1f} %)" for other, part, share in changed[1:]]
    return new_finding(
        severity="low",
        title=f"Changing clock: that of the {kind} {'rose' if change > 0 else 'fell'} by {percent(abs(change))} during the "
        f"steps of {quoted_name(run)}",
        explanation=join_sentences(
            "Steps before and after the change do not take the same time.",
            f"The same holds for {join_list(others)}." if others else "",
        ),
        advice="Stop other work, and run again. If the clock still changes, lock it, or use the governor `performance`."
        if kind != "device"
        else "Run again on a warm device. If the clock still changes, lock it with nvidia-smi --lock-gpu-clocks.",
        evidence=tuple(
            Evidence(name=f"change of the {part}'s clock", value=100.0 * share, unit="percent", where=other.config.name)
            for other, part, share in changed
        ),
        weight=abs(change),
    )


BUSY_HOST = Rule(
    "busy_host",
    f"""
Fires if the cores were not free while steps were timed:

- the threads of the process waited for a core for at least {limit_percent(MAX_WAITING_SHARE)} of their time. If other work used
  at least {MIN_OTHER_CORES:g} cores, it is the cause; otherwise the process and its workers have more threads than cores;
- a CPU limit of the container stopped the process for at least {limit_percent(MAX_THROTTLED_SHARE)} of the steps;
- other work used at least {limit_percent(MAX_OTHER_SHARE)} of the machine's cores, although no thread waited: it shares caches
  and lowers clocks;
- the clock of the core changed by at least {limit_percent(MAX_CLOCK_CHANGE)} between start and end of the steps, or that of the
  device by at least {limit_percent(MAX_SM_CLOCK_CHANGE)}. Where the clock of the core is unknown, as in virtual machines, a fixed
  piece of Python shows its speed, which has to change by {limit_percent(MAX_SPEED_CHANGE)}.

`medium` if the baseline waited or was stopped, `low` otherwise. Linux reports waits and the use of the cores, so the rule is
silent elsewhere. While the baseline is disturbed, findings about time on the host are less severe and say so, and rule
`host_overhead` is silent on a CPU: waiting for a core looks like Python there.
""",
    _busy_host,
    "reading",
)
