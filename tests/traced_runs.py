"""Runs with the mean of their traced steps stated by hand."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from profiler_kit.records.mean_step import MeanStep, PhaseTiming, as_traced
from profiler_kit.records.runs import ConfigRun

_MEAN = frozenset(field.name for field in fields(MeanStep)) | {"untraced_step_ns"}


def traced_run(**values: Any) -> ConfigRun:
    """A run with `values` for its fields and for the figures of its traced steps (`modules`, `kernels`, `idle`, ...)."""
    own = {name: value for name, value in values.items() if name not in _MEAN}
    return with_traced(ConfigRun(**own), **{name: value for name, value in values.items() if name in _MEAN})


def with_traced(run: ConfigRun, **values: Any) -> ConfigRun:
    """`run` with other `values`, of its fields and of its traced steps. An `unattributed_ns` of None: it was not traced."""
    run = replace(run, **{name: value for name, value in values.items() if name not in _MEAN})
    values = {name: value for name, value in values.items() if name in _MEAN}
    if not values:
        return run
    if "phases" in values:
        timed = tuple(_timed(timing) for timing in values["phases"] if timing.stopwatch_ns is not None)
        run = replace(run, timed_phases=timed)
    untraced_step_ns = values.pop("untraced_step_ns", run.untraced_step_ns)
    has_figures = any(value not in ((), None) for name, value in values.items() if name != "phases")
    has_traced_phases = any(timing.kernel_ns is not None for timing in values.get("phases", ()))
    is_traced = run.traced is not None and "unattributed_ns" not in values
    if not (is_traced or has_figures or has_traced_phases or untraced_step_ns):
        return replace(run, traced=None)
    if any(layer.kernels for layer in values.get("modules", ())):
        values.setdefault("kernels", ())
    before = run.mean_step if run.traced is not None else MeanStep(clock="kernel")
    step = replace(before, **{name: value for name, value in values.items() if value is not None})
    return replace(run, traced=as_traced(step, untraced_step_ns))


def _timed(timing: PhaseTiming) -> PhaseTiming:
    return PhaseTiming(phase=timing.phase, stopwatch_ns=timing.stopwatch_ns, event_ns=timing.event_ns)
