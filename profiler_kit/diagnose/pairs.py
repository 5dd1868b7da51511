"""Runs found by their cuDNN flags, never by their names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval

Flag = Literal["benchmark", "deterministic", "allow_tf32"]


def measured(report: Report) -> tuple[ConfigRun, ...]:
    """The runs that have samples, repetitions left out, in the report's order (the baseline first)."""
    return tuple(run for run in report.runs if run.failure is None and run.config.repeat_of is None)


def counterpart(report: Report, run: ConfigRun, flag: Flag, value: bool) -> ConfigRun | None:
    """The run, failed or not, whose flags are those of `run` but for `flag`, which is `value`; None where there is none."""
    if getattr(run.config, flag) is not (not value) or run.config.enabled is False:
        return None
    wanted = with_flag(run.config, flag, value)
    return next((r for r in report.runs if r.config.repeat_of is None and changed_flags(r.config, wanted) == 0), None)


def with_flag(config: RunConfig, flag: Flag, value: bool) -> RunConfig:
    """`config` with one flag changed; its name stays."""
    match flag:
        case "benchmark":
            return replace(config, benchmark=value)
        case "deterministic":
            return replace(config, deterministic=value)
        case "allow_tf32":
            return replace(config, allow_tf32=value)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two measured runs that differ in one flag alone: `off` without it, `on` with it, and their steps."""

    off: ConfigRun
    on: ConfigRun
    before: Interval
    after: Interval


def pairs(report: Report, flag: Flag) -> tuple[Pair, ...]:
    """All pairs of measured runs with a step time that differ in `flag` alone, the baseline's first."""
    found = []
    for off in measured(report):
        on = counterpart(report, off, flag, True)
        if on is not None and on.failure is None and on.step_ns is not None and off.step_ns is not None:
            found.append(Pair(off, on, off.step_ns, on.step_ns))
    baseline = report.baseline()
    return tuple(sorted(found, key=lambda pair: baseline is not pair.off and baseline is not pair.on))


def changed_flags(a: RunConfig, b: RunConfig) -> int:
    """How many flags differ between two configurations."""
    flags = ("enabled", "benchmark", "deterministic", "allow_tf32")
    return sum(getattr(a, flag) is not getattr(b, flag) for flag in flags)
