"""Sample figures of the case study, for the tests in this folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiler_kit.records.samples import Interval
from profiler_kit.records.traces import PhaseTime
from scripts.case_study.figures import CountFigures, Figures, NaiveLoop, RunFigures

MS = 1_000_000


def run(model: str, config: str, step_ms: float = 10.0, **fields: Any) -> RunFigures:
    """A run whose step interval is `step_ms` plus or minus 0.5 %."""
    step_ns = round(step_ms * MS)
    interval = Interval(median=step_ns, low=step_ns * 995 // 1000, high=step_ns * 1005 // 1000)
    timings: dict[str, Any] = {
        "step_ns": interval,
        "clock": "kernel",
        "phases": phases(forward=(step_ns, step_ns)),
    } | fields
    return RunFigures(model=model, config=config, steps=50, **timings)


def repeat_of(first: RunFigures, step_ms: float) -> RunFigures:
    repeated = run(first.model, f"{first.config} (again)", step_ms)
    return replace(repeated, repeat_of=first.config)


def phases(**by_phase: tuple[int, int]) -> tuple[PhaseTime, ...]:
    """Phases by name; each value is (stopwatch time, kernel time)."""
    return tuple(
        PhaseTime(phase=phase, stopwatch_ns=clocks[0], event_ns=clocks[1], kernel_ns=clocks[1])  # type: ignore[arg-type]
        for phase, clocks in by_phase.items()
    )


def count(model: str, size: int, macs: int, *, batch: int = 1, saved: int = 100) -> CountFigures:
    return CountFigures(
        model=model,
        size=size,
        batch=batch,
        params=1,
        macs=macs,
        saved_bytes=saved,
        dominant_path="c",
        dominant_share=0.9,
    )


def cuda(**fields: Any) -> Figures:
    return Figures(cuda=True, **fields)


def naive(benchmark: bool, cold: int, warm: int, true: int) -> NaiveLoop:
    phase_timings = phases(forward=(1, 1), loss=(1, 1), backward=(1, 1))
    return NaiveLoop(
        model="convnet_v0", mode="train", benchmark=benchmark, steps=20, cold_ns=cold, warm_ns=warm, true_ns=true,
        flipped_ns=true, early=phase_timings, late=phase_timings,
    )  # fmt: skip
