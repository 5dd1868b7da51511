"""A device that is idle because the host cannot launch its short kernels fast enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.facts import facts_of
from profiler_kit.diagnosis.idle_time import (
    LARGE_IDLE_SHARE,
    LAUNCH_CAUSES,
    LAUNCH_CLAIMS,
    MIN_DEVICE_EVENTS,
    MIN_LAUNCH_SHARE,
    MIN_LAUNCH_SHARE_OF_IDLE,
    IdleStep,
    calls_text,
    run_step,
    worst_idle,
)
from profiler_kit.diagnosis.pairs import limits_algorithms, runs_with_settings
from profiler_kit.diagnosis.phrases import Advice, join_list, join_sentences, limit_percent, plural, quoted_name
from profiler_kit.diagnosis.rule import Rule, evidence_of
from profiler_kit.diagnosis.timing import kernels_of, median_kernel_ns, phase_shares
from profiler_kit.diagnosis.work_sites import launches_sentence, removable_sites, site_text, sites_sentence
from profiler_kit.records.report import Evidence, Finding, Report, Severity, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import idle_by_cause
from profiler_kit.statistics.noise import noise_of
from profiler_kit.units import percent, text

# From this idle share before launches on, launches decide the length of the step.
LARGE_LAUNCH_SHARE: Final = 0.4
# From a fifth of the step on, fewer launches are worth acting on.
MEDIUM_LAUNCH_SHARE: Final = 0.2
# Up to this busy share, fewer launches still save a tenth or more of the step.
PARTLY_BOUND_BUSY_SHARE: Final = 0.9
# A launch through PyTorch takes the host 5 to 10 us. A shorter kernel ends before the next one is launched.
SHORT_KERNEL_NS: Final = 10_000
# Configurations with fewer or larger kernels; the smallest change of the training script first.
TRIES: Final = ("cuda_graph", "compile", "batch=2x", "fused_optimizer")
TRIES_WITH_SETTINGS: Final = ("cuda_graph",)  # for a run that already has settings
FEW_LAUNCHES: Final = frozenset({"cuda_graph", "compile"})  # settings that already reduce launches

MAX_LISTED_CAUSES: Final = 3
MIN_SITE_SAVING: Final = 0.05  # of places in a list

_BATCH: Final = "a larger batch"
_COMPILE: Final = "model = torch.compile(model)"
_GRAPH_CALL: Final = "torch.compile(model, mode='reduce-overhead')"
_GRAPHS: Final = f"CUDA graphs with {_GRAPH_CALL}"
_FUSED: Final = "a fused optimizer (fused=True)"

DOC = f"""
Fires if the device is idle before launches for at least {limit_percent(MIN_LAUNCH_SHARE)} of the step: kernels end before the
host launches the next ones. If it is less than {limit_percent(LARGE_IDLE_SHARE)}, it also has to be at least
{limit_percent(MIN_LAUNCH_SHARE_OF_IDLE)} of the idle time before launches and of unknown cause. cuDNN flags do not help then.

- `high`: for at least {limit_percent(LARGE_LAUNCH_SHARE)} of the step, *launch-bound*.
- `medium`: at least {limit_percent(MEDIUM_LAUNCH_SHARE)}, *partly launch-bound*.
- `low`: below that, *partly launch-bound*.

Idle time before launches is that of dispatch, Python and launch latency. It does not include idle time that waits of the host
cause (rule `sync_waits`), slow first calls (rule `cold_start`), and calls that each keep the device idle for a millisecond or
more (rules `host_overhead` and `cpu_fallback`): fewer launches do not remove these.

In a report, the share of the step comes from timed steps, its causes from traced steps. If other configurations are faster than
the baseline, the rule also checks the fastest of them: with faster kernels, a step often becomes launch-bound. A report without
causes of idle time needs half of the kernels to take less than {SHORT_KERNEL_NS // 1000} us. The rule does not cover CPUs, or
devices that mostly wait for data (rule `data_bound`).

A trace needs at least {MIN_DEVICE_EVENTS} device events, or two marked steps. The advice leaves out torch.compile and CUDA graphs
where a trace already has them. The profiler slows launches down, so the same step is less launch-bound without it.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield a finding for the baseline, and one for the fastest configuration with settings, if they are launch-bound."""
    baseline = report.baseline()
    yield from _check_run(report, baseline, TRIES)
    if baseline is None:
        return
    noise = noise_of(report)
    candidates = [run for run in runs_with_settings(report) if not limits_algorithms(run.config)]
    differences = [(found, run) for run in candidates if (found := noise.difference(baseline, run)) is not None]
    faster = [(found.saved, run) for found, run in differences if found.outcome == "better"]
    fastest = max(faster, key=lambda pair: pair[0], default=(0.0, None))[1]
    if fastest is not None and not {item.name for item in fastest.config.settings} & FEW_LAUNCHES:
        yield from _check_run(report, fastest, TRIES_WITH_SETTINGS)


def _check_run(report: Report, run: ConfigRun | None, tries: tuple[str, ...]) -> Iterator[Finding]:
    if run is None or run.clock != "kernel" or run.step_ns is None or run.device_ns is None:
        return
    busy, median = run.busy_share, median_kernel_ns(run)
    if busy is None or median is None or busy >= PARTLY_BOUND_BUSY_SHARE:
        return
    step = run_step(run)
    if (
        share := step.launch_share() if step is not None and step.idle else _share_without_causes(busy, median)
    ) is None:
        return
    if phase_shares(run, "stopwatch").get("data", 0.0) > (1.0 - busy) / 2:
        return  # the device waits for the data loader
    trials = find_trials(report, run, tries)
    place = "" if run is report.baseline() else f" in {quoted_name(run)}"
    launches = sum(k.calls for k in kernels_of(run))
    causes = [f"{cause} {text(ns, 'ns')}" for cause, ns in idle_by_cause(run.idle).items()][:MAX_LISTED_CAUSES]
    yield RULE.finding(
        severity=_severity(share),
        title=f"{_degree(share)}{place}: kernels run for {percent(busy)} of the step, the device is idle for the rest",
        explanation=join_sentences(
            f"In {quoted_name(run)}, {plural(launches, 'kernel')} {'takes' if launches == 1 else 'take'} "
            f"{text(run.device_ns, 'ns')} of a step of {text(run.step_ns.median, 'ns')}; half of them take at most "
            f"{text(median, 'ns')}.",
            "Kernels end before the host launches the next ones.",
            f"Without gaps before launches the step would take at most {percent(share)} less time.",
            f"Idle time of a traced step by cause: {join_list(causes)}." if causes else "",
            trials.sentence(),
        ),
        advice=_advice(_COMPILE, _BATCH, _COMPILE, _GRAPHS, *([_FUSED] if facts_of(report).has_optimizer else [])),
        evidence=(
            Evidence(name="kernel time over step", value=100.0 * busy, unit="percent", where=run.config.name),
            Evidence(name="kernel time", value=run.device_ns, unit="ns", where=run.config.name),
            Evidence(name="median step", value=run.step_ns.median, unit="ns", where=run.config.name),
            Evidence(name="median kernel", value=median, unit="ns", where=run.config.name),
            Evidence(name="kernels per step", value=launches, unit="count", where=run.config.name),
        ),
        trials=trials,
        weight=share,
        claims=LAUNCH_CLAIMS,
    )


def _advice(code: str, *options: str) -> Advice:
    return Advice(f"Launch fewer or larger kernels: {', '.join(options)}. cuDNN flags do not help.", code)


def _trace_advice(step: IdleStep) -> Advice:
    """Return the advice without what the step already uses, and without what it lacks."""
    code, options = "", [_BATCH]
    if step.graphs:
        options.append("larger parts of the program in each CUDA graph")
    else:
        code = _GRAPH_CALL if step.compiled else _COMPILE
        options += [_GRAPHS] if step.compiled else [_COMPILE, _GRAPHS]
    return _advice(code, *options, *([_FUSED] if step.facts.has_optimizer else []))


def _degree(share: float) -> str:
    return "Launch-bound" if share >= LARGE_LAUNCH_SHARE else "Partly launch-bound"


def _severity(share: float) -> Severity:
    if share >= LARGE_LAUNCH_SHARE:
        return "high"
    return "medium" if share >= MEDIUM_LAUNCH_SHARE else "low"


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace whose device is idle longest before launches."""
    if (worst := worst_idle(report, _trace_launch_share, lambda share: share)) is None:
        return
    step, share = worst.step, worst.match
    causes = [f"{cause} {text(ns, 'ns')}" for cause in LAUNCH_CAUSES if (ns := step.idle_ns(cause))]
    yield RULE.finding(
        severity=_severity(share),
        title=f"{_degree(share)}: the device is busy for {percent(step.busy_share)} of the time and waits for launches "
        f"for {percent(share)}{_largest_place(step, share)}",
        explanation=join_sentences(
            f"{step.prefix}The device is busy for {text(step.busy_ns, 'ns')} of {text(step.span_ns, 'ns')}, with "
            f"{plural(step.events, 'event')}.",
            f"Half of the kernels take at most {text(step.median_kernel_ns, 'ns')}." if step.median_kernel_ns else "",
            f"Idle time by cause: {join_list(causes)}.",
            _host_sentence(step),
            launches_sentence(step.sites),
            sites_sentence(step.sites, MIN_SITE_SAVING),
            worst.others_sentence(),
        ),
        advice=_trace_advice(step),
        evidence=(
            Evidence(name="busy share of the span", value=100.0 * step.busy_share, unit="percent", where=step.where),
            Evidence(name="idle time before launches", value=step.launch_ns(), unit="ns", where=step.where),
            Evidence(name="span", value=step.span_ns, unit="ns", where=step.where),
            *evidence_of(step.where, ("median kernel", step.median_kernel_ns, "ns")),
            Evidence(name="device events", value=step.events, unit="count", where=step.where),
        ),
        weight=share,
        claims=LAUNCH_CLAIMS,
    )


def _host_sentence(step: IdleStep) -> str:
    """Return what the host does while the device waits for launches; empty where unknown."""
    activities = [item for item in step.activities if not item.launched]
    return f"Meanwhile the host is mostly in {calls_text(activities)}." if activities else ""


def _largest_place(step: IdleStep, share: float) -> str:
    """Return the place that causes at least half of the share, as the end of a title; empty without one."""
    sites = removable_sites(step.sites, max(MIN_SITE_SAVING, share / 2))
    return f"; most come from {site_text(sites[0])}" if sites else ""


def _trace_launch_share(step: IdleStep) -> float | None:
    if not step.on_device or step.busy_share >= PARTLY_BOUND_BUSY_SHARE:
        return None
    return step.launch_share()


def _share_without_causes(busy: float, median_ns: float) -> float | None:
    return 1.0 - busy if median_ns < SHORT_KERNEL_NS else None


RULE = Rule("launch_bound", DOC, check, "place", check_trace)
