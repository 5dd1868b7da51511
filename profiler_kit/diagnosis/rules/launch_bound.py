"""A device that is idle because the host cannot launch its short kernels fast enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.pairs import limits_algorithms, runs_with_settings
from profiler_kit.diagnosis.phrases import join_list, join_sentences, limit_percent, plural, quoted_name
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import device_share, kernels_of, median_kernel_ns, phase_shares
from profiler_kit.diagnosis.trace_facts import idle_ns, on_device, worst_trace
from profiler_kit.diagnosis.trace_facts import median_kernel_ns as trace_median_kernel_ns
from profiler_kit.records.report import Evidence, Finding, Report, Severity, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import IdleCause, TraceSummary, idle_by_cause
from profiler_kit.statistics.noise import mean_saved_share, noise_of, verdict
from profiler_kit.units import percent, text

# Below this busy share, launches decide the length of the step.
LAUNCH_BOUND_BUSY_SHARE: Final = 0.6
# Up to this busy share, fewer launches still save a tenth or more of the step.
PARTLY_BOUND_BUSY_SHARE: Final = 0.9
# Below this busy share, a partly launch-bound step is worth acting on: the device is idle for more than a fifth.
MEDIUM_BUSY_SHARE: Final = 0.8
# A launch through PyTorch takes the host 5 to 10 us. A shorter kernel ends before the next one is launched.
SHORT_KERNEL_NS: Final = 10_000
# Configurations with fewer or larger kernels; the smallest change of the training script first.
TRIES: Final = ("cuda_graph", "compile", "batch=2x", "fused_optimizer")
TRIES_WITH_SETTINGS: Final = ("cuda_graph",)  # for a run that already has settings
FEW_LAUNCHES: Final = frozenset({"cuda_graph", "compile"})  # settings that already reduce launches

# Causes of idle time that fewer launches reduce.
LAUNCH_CAUSES: Final[tuple[IdleCause, ...]] = ("op dispatch", "python", "launch latency")
# From this share of the idle time on, the device waits for launches rather than for data or other processes.
MIN_LAUNCH_SHARE_OF_IDLE: Final = 0.5
MAX_LISTED_CAUSES: Final = 3
# With fewer events a trace does not show a training loop.
MIN_DEVICE_EVENTS: Final = 30

LAUNCH_ADVICE: Final = (
    "Launch fewer or larger kernels: a larger batch, torch.compile, CUDA graphs "
    "(torch.compile(mode='reduce-overhead')), a fused optimizer (fused=True). cuDNN flags do not help."
)

DOC = f"""
Fires if kernels run for less than {limit_percent(PARTLY_BOUND_BUSY_SHARE)} of the baseline's step, and half of the
launched kernels take less than {SHORT_KERNEL_NS // 1000} us: kernels end before the host launches the next ones. cuDNN flags
do not help then.

- `high`: below {limit_percent(LAUNCH_BOUND_BUSY_SHARE)}, *launch-bound*.
- `medium`: below {limit_percent(MEDIUM_BUSY_SHARE)}, *partly launch-bound*.
- `low`: below {limit_percent(PARTLY_BOUND_BUSY_SHARE)}, *partly launch-bound*.

The finding gives the idle share, which is the most that fewer launches can save. If other configurations are faster than the
baseline, the rule also checks the fastest of them: with faster kernels, a step often becomes launch-bound.

Kernel time comes from traced steps and the step from timed steps, so the share is accurate to a few percent. The rule does not
cover CPUs, or devices that mostly wait for data (rule `data_bound`).

In a trace, the same limits hold for the busy share of the span, if at least {limit_percent(MIN_LAUNCH_SHARE_OF_IDLE)} of the idle
time is attributed to launches (dispatch, Python, launch latency) and the trace has at least {MIN_DEVICE_EVENTS} device events.
The profiler slows launches down, so the same step is less launch-bound without it.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield a finding for the baseline, and one for the fastest configuration with settings, if they are launch-bound."""
    baseline = report.baseline()
    yield from _check_run(report, baseline, TRIES)
    if baseline is None:
        return
    noise = noise_of(report)
    candidates = [run for run in runs_with_settings(report) if not limits_algorithms(run.config)]
    faster = [run for run in candidates if verdict(baseline, run, noise) == "better"]
    fastest = max(faster, key=lambda run: mean_saved_share(baseline, run, noise) or 0.0, default=None)
    if fastest is not None and not {item.name for item in fastest.config.settings} & FEW_LAUNCHES:
        yield from _check_run(report, fastest, TRIES_WITH_SETTINGS)


def _check_run(report: Report, run: ConfigRun | None, tries: tuple[str, ...]) -> Iterator[Finding]:
    if run is None or run.clock != "kernel" or run.step_ns is None or run.device_ns is None:
        return
    busy, median = device_share(run), median_kernel_ns(run)
    if busy is None or median is None or busy >= PARTLY_BOUND_BUSY_SHARE or median >= SHORT_KERNEL_NS:
        return
    if phase_shares(run, "stopwatch").get("data", 0.0) > (1.0 - busy) / 2:
        return  # the device waits for the data loader
    trials = find_trials(report, run, tries)
    place = "" if run is report.baseline() else f" in {quoted_name(run)}"
    launches = sum(k.calls for k in kernels_of(run))
    causes = [f"{cause} {text(ns, 'ns')}" for cause, ns in idle_by_cause(run.idle).items()][:MAX_LISTED_CAUSES]
    yield RULE.finding(
        severity=_severity(busy),
        title=f"{_degree(busy)}{place}: kernels run for {percent(busy)} of the step, the device is idle for the rest",
        explanation=join_sentences(
            f"In {quoted_name(run)}, {plural(launches, 'kernel')} {'takes' if launches == 1 else 'take'} "
            f"{text(run.device_ns, 'ns')} of a step of {text(run.step_ns.median, 'ns')}; half of them take at most "
            f"{text(median, 'ns')}.",
            "The host needs about as long to launch a kernel, so the device waits for launches.",
            f"Without gaps between kernels the step would take at most {percent(1.0 - busy)} less time.",
            f"Idle time of a traced step by cause: {join_list(causes)}." if causes else "",
            trials.sentence(),
        ),
        advice=LAUNCH_ADVICE,
        evidence=(
            Evidence(name="kernel time over step", value=100.0 * busy, unit="percent", where=run.config.name),
            Evidence(name="kernel time", value=run.device_ns, unit="ns", where=run.config.name),
            Evidence(name="median step", value=run.step_ns.median, unit="ns", where=run.config.name),
            Evidence(name="median kernel", value=median, unit="ns", where=run.config.name),
            Evidence(name="kernels per step", value=launches, unit="count", where=run.config.name),
        ),
        trials=trials,
        weight=1.0 - busy,
    )


def _degree(busy: float) -> str:
    return "Launch-bound" if busy < LAUNCH_BOUND_BUSY_SHARE else "Partly launch-bound"


def _severity(busy: float) -> Severity:
    if busy < LAUNCH_BOUND_BUSY_SHARE:
        return "high"
    return "medium" if busy < MEDIUM_BUSY_SHARE else "low"


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the launch-bound trace with the smallest busy share."""
    if (worst := worst_trace(report, _launch_bound, lambda match: 1.0 - match[0])) is None:
        return
    (busy, median), trace = worst.match, worst.trace
    causes = [f"{cause} {text(ns, 'ns')}" for cause in LAUNCH_CAUSES if (ns := idle_ns(trace, cause))]
    launch_idle_ns = idle_ns(trace, *LAUNCH_CAUSES)
    share = launch_idle_ns / trace.span_ns
    yield RULE.finding(
        severity=_severity(busy),
        title=f"{_degree(busy)}: the device is busy for {percent(busy)} of the time and waits for launches for {percent(share)}",
        explanation=join_sentences(
            f"{worst.sentence_prefix}The device is busy for {text(trace.busy_ns, 'ns')} of {text(trace.span_ns, 'ns')}, with "
            f"{plural(trace.device_events, 'event')}. Half of the kernels take at most {text(median, 'ns')}.",
            f"Idle time that launches cause: {join_list(causes)}.",
            "The profiler slows the host down; without it, the idle time is shorter.",
            worst.others_sentence(),
        ),
        advice=LAUNCH_ADVICE,
        evidence=(
            Evidence(name="busy share of the span", value=100.0 * busy, unit="percent", where=worst.where),
            Evidence(name="idle time caused by launches", value=launch_idle_ns, unit="ns", where=worst.where),
            Evidence(name="span", value=trace.span_ns, unit="ns", where=worst.where),
            Evidence(name="median kernel", value=median, unit="ns", where=worst.where),
            Evidence(name="device events", value=trace.device_events, unit="count", where=worst.where),
        ),
        weight=share,
    )


def _launch_bound(trace: TraceSummary) -> tuple[float, float] | None:
    """Return the busy share and the median kernel duration of a launch-bound trace; None for other traces."""
    if not on_device(trace):
        return None
    busy, median = trace.busy_ns / trace.span_ns, trace_median_kernel_ns(trace.kernels)
    if median is None or busy >= PARTLY_BOUND_BUSY_SHARE or median >= SHORT_KERNEL_NS:
        return None
    if trace.device_events < MIN_DEVICE_EVENTS:
        return None
    return (busy, median) if idle_ns(trace, *LAUNCH_CAUSES) >= MIN_LAUNCH_SHARE_OF_IDLE * trace.idle_ns else None


RULE = Rule("launch_bound", DOC, check, "place", check_trace)
