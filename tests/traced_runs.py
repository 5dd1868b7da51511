"""Runs with the mean of their traced steps stated by hand, as files of earlier versions state it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiler_kit.records.run_file import summary_of_mean
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.serde import to_json
from profiler_kit.records.traces import PhaseTime, TraceSummary

_STEP = ("phases", "modules", "kernels", "unattributed_ns", "span_ns", "idle", "activities", "queue")
_MEAN = (*_STEP, "clock", "waits", "untraced_step_ns")


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
    has_figures = any(value not in ((), None) for name, value in values.items() if name != "phases")
    has_traced_phases = any(timing.kernel_ns is not None for timing in values.get("phases", ()))
    is_traced = run.traced is not None and "unattributed_ns" not in values
    if not (is_traced or has_figures or has_traced_phases or run.untraced_step_ns):
        return replace(run, traced=None)
    if any(layer.kernels for layer in values.get("modules", ())):
        values.setdefault("kernels", ())
    given = {name: value for name, value in values.items() if value is not None}
    mean = _mean(run) | {name: to_json(value) for name, value in given.items()}
    return replace(run, traced=summary_of_mean(mean))


def step_of(run: ConfigRun) -> TraceSummary:
    """The mean traced step of `run`."""
    assert run.mean_step is not None
    return run.mean_step


def _mean(run: ConfigRun) -> dict[str, Any]:
    step = run.mean_step
    if step is None:
        return {"clock": "kernel", "unattributed_ns": 0}
    mean = {name: to_json(getattr(step, name)) for name in _STEP}
    untraced = to_json(run.untraced_step_ns)
    return mean | {"clock": run.clock, "waits": to_json(step.syncs), "untraced_step_ns": untraced}


def _timed(timing: PhaseTime) -> PhaseTime:
    return PhaseTime(phase=timing.phase, stopwatch_ns=timing.stopwatch_ns, event_ns=timing.event_ns)
