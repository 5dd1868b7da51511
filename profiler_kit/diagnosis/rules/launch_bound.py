"""A device that is idle because the host cannot launch its short kernels fast enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from profiler_kit.diagnosis.advice import AdviceTrials, find_trials, trials_of
from profiler_kit.diagnosis.facts import facts_of
from profiler_kit.diagnosis.idle_time import (
    LARGE_IDLE_SHARE,
    LAUNCH_CAUSES,
    LAUNCH_CLAIMS,
    MIN_DEVICE_EVENTS,
    MIN_LAUNCH_SHARE,
    MIN_LAUNCH_SHARE_OF_IDLE,
    calls_text,
    launch_ns,
    launch_share,
)
from profiler_kit.diagnosis.pairs import limits_algorithms, runs_with_settings
from profiler_kit.diagnosis.phrases import Advice, join_list, join_sentences, limit_percent, plural
from profiler_kit.diagnosis.rule import Rule, evidence_of
from profiler_kit.diagnosis.step_work import StepWork, idle_steps, run_step, worst_step
from profiler_kit.diagnosis.work_sites import (
    launches_sentence,
    launching_place,
    removable_sites,
    site_text,
    sites_sentence,
)
from profiler_kit.records.report import Evidence, Finding, Report, Severity, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import noise_of
from profiler_kit.units import percent, text

# From this idle share before launches on, launches decide the length of the step.
LARGE_LAUNCH_SHARE: Final = 0.4
# From a fifth of the step on, fewer launches are worth acting on.
MEDIUM_LAUNCH_SHARE: Final = 0.2
# Up to this busy share, fewer launches still save a tenth or more of the step.
PARTLY_BOUND_BUSY_SHARE: Final = 0.9
# Configurations with fewer or larger kernels; the smallest change of the training script first.
TRIES: Final = ("cuda_graph", "compile", "batch=2x", "fused_optimizer")
TRIES_WITH_SETTINGS: Final = ("cuda_graph",)  # for a run that already has settings
FEW_LAUNCHES: Final = frozenset({"cuda_graph", "compile"})  # settings that already reduce launches

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

If other configurations of a report are faster than the baseline, the rule also checks the fastest of them: with faster kernels,
a step often becomes launch-bound. The rule does not cover CPUs.

A trace needs at least {MIN_DEVICE_EVENTS} device events, or two marked steps. The advice leaves out torch.compile and CUDA graphs
where a trace already has them. The shares are those of the step without the profiler.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield a finding for the baseline, or for the trace whose device is idle longest before launches.

    Of a report, also one for the fastest configuration with settings: with faster kernels, a step often becomes launch-bound.
    """
    worst = worst_step(idle_steps(report), _launch_share, lambda share: share)
    if worst is not None:
        yield _finding(worst.step, worst.match, trials_of(report, *TRIES), worst.others_sentence())
    fastest = _fastest(report) if isinstance(report, Report) else None
    step = run_step(fastest) if fastest is not None else None
    if isinstance(report, Report) and fastest is not None and step is not None:
        share = _launch_share(step)
        if share is not None:
            trials = find_trials(report, fastest, TRIES_WITH_SETTINGS)
            yield _finding(replace(step, facts=facts_of(report)), share, trials, place=f" in {step.name}")


def _fastest(report: Report) -> ConfigRun | None:
    """Return the fastest configuration with settings, if it is faster than the baseline and has not fewer launches already."""
    baseline = report.baseline()
    if baseline is None:
        return None
    noise = noise_of(report)
    candidates = [run for run in runs_with_settings(report) if not limits_algorithms(run.config)]
    differences = [(found, run) for run in candidates if (found := noise.difference(baseline, run)) is not None]
    faster = [(found.saved, run) for found, run in differences if found.outcome == "better"]
    fastest = max(faster, key=lambda pair: pair[0], default=(0.0, None))[1]
    if fastest is None or {item.name for item in fastest.config.settings} & FEW_LAUNCHES:
        return None
    return fastest


def _finding(step: StepWork, share: float, trials: AdviceTrials, others: str = "", place: str = "") -> Finding:
    causes = [f"{cause} {text(ns, 'ns')}" for cause in LAUNCH_CAUSES if (ns := step.idle_ns(cause))]
    return RULE.finding(
        severity=_severity(share),
        title=f"{_degree(share)}{place}: the device is busy for {percent(step.busy_share)} of the time and waits for launches "
        f"for {percent(share)}{_largest_place(step, share)}",
        explanation=join_sentences(
            f"{step.prefix}The device is busy for {text(step.busy_ns, 'ns')} of {text(step.span_ns, 'ns')}, with "
            f"{plural(step.trace.device_events, 'event')}.",
            f"Half of the kernels take at most {text(step.median_kernel_ns, 'ns')}." if step.median_kernel_ns else "",
            f"Idle time by cause: {join_list(causes)}.",
            _host_sentence(step),
            launches_sentence(step.trace.sites),
            sites_sentence(step.trace.sites, MIN_SITE_SAVING),
            trials.sentence(),
            others,
        ),
        advice=_advice(step),
        evidence=(
            Evidence(name="busy share of the span", value=100.0 * step.busy_share, unit="percent", where=step.name),
            Evidence(name="idle time before launches", value=launch_ns(step), unit="ns", where=step.name),
            Evidence(name="span", value=step.span_ns, unit="ns", where=step.name),
            *evidence_of(step.name, ("median kernel", step.median_kernel_ns, "ns")),
            Evidence(name="device events", value=step.trace.device_events, unit="count", where=step.name),
        ),
        trials=trials,
        weight=share,
        claims=LAUNCH_CLAIMS,
    )


def _advice(step: StepWork) -> Advice:
    """Return the advice without what the step already uses, and without what it lacks."""
    code, options = "", [_BATCH]
    if step.trace.graph_launches:
        options.append("larger parts of the program in each CUDA graph")
    else:
        code = _GRAPH_CALL if step.trace.compiled else _COMPILE
        options += [_GRAPHS] if step.trace.compiled else [_COMPILE, _GRAPHS]
    options += [_FUSED] if step.facts.has_optimizer else []
    return Advice(f"Launch fewer or larger kernels: {', '.join(options)}. cuDNN flags do not help.", code)


def _degree(share: float) -> str:
    return "Launch-bound" if share >= LARGE_LAUNCH_SHARE else "Partly launch-bound"


def _severity(share: float) -> Severity:
    if share >= LARGE_LAUNCH_SHARE:
        return "high"
    return "medium" if share >= MEDIUM_LAUNCH_SHARE else "low"


def _host_sentence(step: StepWork) -> str:
    """Return what the host does while the device waits for launches; empty where unknown."""
    activities = [item for item in step.trace.activities if not item.launched]
    return f"Meanwhile the host is mostly in {calls_text(activities)}." if activities else ""


def _largest_place(step: StepWork, share: float) -> str:
    """Return the place that causes most of the share, as the end of a title; empty without one."""
    sites = removable_sites(step.trace.sites, max(MIN_SITE_SAVING, share / 2))
    return f"; most come from {site_text(sites[0])}" if sites else launching_place(step.trace.sites)


def _launch_share(step: StepWork) -> float | None:
    if not step.on_device or step.busy_share >= PARTLY_BOUND_BUSY_SHARE:
        return None
    return launch_share(step)


RULE = Rule("launch_bound", DOC, check, "place", "both")
