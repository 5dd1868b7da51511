"""A device that is idle before launches."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.advice import trials_of
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
from profiler_kit.diagnosis.phrases import Advice, join_list, limit_percent, plural
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
from profiler_kit.diagnosis.work_sites import (
    launches_sentence,
    launching_place,
    removable_sites,
    site_text,
    sites_sentence,
)
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import percent, text

# Up to this busy share, fewer launches still save a tenth or more of the step.
PARTLY_BOUND_BUSY_SHARE: Final = 0.9
# Configurations with fewer or larger kernels; the smallest change of the training script first.
TRIES: Final = ("cuda_graph", "compile", "batch=2x", "fused_optimizer")

MIN_SITE_SAVING: Final = 0.05  # of places in a list
# From this idle share before launches on, launches decide the length of the step; from a fifth on, fewer are worth acting on.
LAUNCH_SHARES: Final = Shares(MIN_LAUNCH_SHARE, medium=0.2, high=0.4)

_BATCH: Final = "a larger batch"
_COMPILE: Final = "model = torch.compile(model)"
_GRAPH_CALL: Final = "torch.compile(model, mode='reduce-overhead')"
_GRAPHS: Final = f"CUDA graphs with {_GRAPH_CALL}"
_FUSED: Final = "a fused optimizer (fused=True)"


def _launch_bound(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    share = launch_share(step) if step.on_device and step.busy_share < PARTLY_BOUND_BUSY_SHARE else None
    if share is None:
        return None
    trials = trials_of(report, *TRIES)
    causes = [f"{cause} {text(ns, 'ns')}" for cause in LAUNCH_CAUSES if (ns := step.idle_ns(cause))]
    activities = [item for item in step.trace.activities if not item.launched]
    degree = "Launch-bound" if LAUNCH_SHARES.severity(share) == "high" else "Partly launch-bound"
    return StepPart(
        share=share,
        share_name="idle time before launches, share",
        title=f"{degree}: the device is busy for {percent(step.busy_share)} of the time and waits for launches for "
        f"{percent(share)}{_largest_place(step, share)}",
        sentences=(
            f"The device is busy for {text(step.busy_ns, 'ns')} of {text(step.span_ns, 'ns')}, with "
            f"{plural(step.trace.device_events, 'event')}.",
            f"Half of the kernels take at most {text(step.median_kernel_ns, 'ns')}." if step.median_kernel_ns else "",
            f"Idle time by cause: {join_list(causes)}.",
            f"Meanwhile the host is mostly in {calls_text(activities)}." if activities else "",
            launches_sentence(step.trace.sites),
            sites_sentence(step.trace.sites, MIN_SITE_SAVING),
            trials.sentence(),
        ),
        advice=_launch_advice(step),
        measures=(
            ("busy share of the span", 100.0 * step.busy_share, "percent"),
            ("idle time before launches", launch_ns(step), "ns"),
            ("span", step.span_ns, "ns"),
            ("median kernel", step.median_kernel_ns, "ns"),
            ("device events", step.trace.device_events, "count"),
        ),
        trials=trials,
        claims=LAUNCH_CLAIMS,
    )


def _launch_advice(step: StepWork) -> Advice:
    """Return the advice without what the step already uses, and without what it lacks."""
    code, options = "", [_BATCH]
    if step.trace.graph_launches:
        options.append("larger parts of the program in each CUDA graph")
    else:
        code = _GRAPH_CALL if step.trace.compiled else _COMPILE
        options += [_GRAPHS] if step.trace.compiled else [_COMPILE, _GRAPHS]
    options += [_FUSED] if step.facts.has_optimizer else []
    return Advice(f"Launch fewer or larger kernels: {', '.join(options)}. cuDNN flags do not help.", code)


def _largest_place(step: StepWork, share: float) -> str:
    """Return the place that causes most of the share, as the end of a title; empty without one."""
    sites = removable_sites(step.trace.sites, max(MIN_SITE_SAVING, share / 2))
    return f"; most come from {site_text(sites[0])}" if sites else launching_place(step.trace.sites)


LAUNCH_BOUND = step_rule(
    "launch_bound",
    _launch_bound,
    LAUNCH_SHARES,
    f"""
Fires if the device is idle before launches for at least {limit_percent(MIN_LAUNCH_SHARE)} of the step: kernels end before the
host launches the next ones. If it is less than {limit_percent(LARGE_IDLE_SHARE)}, it also has to be at least
{limit_percent(MIN_LAUNCH_SHARE_OF_IDLE)} of the idle time before launches and of unknown cause. cuDNN flags do not help then. A
`high` finding says *launch-bound*, another one *partly launch-bound*.

Idle time before launches is that of dispatch, Python and launch latency. It does not include idle time that waits of the host
cause (rule `sync_waits`), slow first calls (rule `cold_start`), and calls that each keep the device idle for a millisecond or
more (rules `host_overhead` and `cpu_fallback`): fewer launches do not remove these.

The rule does not cover CPUs.

A trace needs at least {MIN_DEVICE_EVENTS} device events, or two marked steps. The advice leaves out torch.compile and CUDA graphs
where a trace already has them. The shares are those of the step without the profiler.
""",
    topic="bound",
    steps=idle_steps,
)
