"""Runs found by what they do, cuDNN's flags and other settings, never by their names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from profiler_kit.diagnosis.words import quoted
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.units import text

Flag = Literal["benchmark", "deterministic", "allow_tf32"]
_FLAGS: Final = ("enabled", "benchmark", "deterministic", "allow_tf32")
# Settings that leave each layer's work and arithmetic as they are, so that its times can be compared, layer by layer.
SAME_WORK: Final = frozenset({"channels_last", "benchmark_limit"})
LIMITS: Final = frozenset({"benchmark_limit", "memory_limit"})


def measured(report: Report) -> tuple[ConfigRun, ...]:
    """The runs that have samples, repetitions left out, in the report's order (the baseline first)."""
    return tuple(run for run in report.runs if run.failure is None and run.config.repeat_of is None)


def plain(report: Report) -> tuple[ConfigRun, ...]:
    """The measured runs in which nothing but cuDNN's flags differs."""
    return tuple(run for run in measured(report) if run.config.is_plain)


def with_settings(report: Report) -> tuple[ConfigRun, ...]:
    """The measured runs in which more than cuDNN's flags differs."""
    return tuple(run for run in measured(report) if not run.config.is_plain)


def is_limited(config: RunConfig) -> bool:
    """Whether a setting only limits the choice: nothing that one would take to be faster, and with a rule of its own."""
    return any(config.setting(name) is not None for name in LIMITS)


def does_same_work(config: RunConfig) -> bool:
    """Whether no setting changes what the layers are to do, or in which arithmetic."""
    return {item.name for item in config.settings} <= SAME_WORK


def counterpart(report: Report, run: ConfigRun, flag: Flag, value: bool) -> ConfigRun | None:
    """The run, failed or not, whose flags are those of `run` but for `flag`, which is `value`; None where there is none."""
    if getattr(run.config, flag) is not (not value) or run.config.enabled is False:
        return None
    return run_of(report, with_flag(run.config, flag, value))


def run_of(report: Report, wanted: RunConfig) -> ConfigRun | None:
    """The run, failed or not, that does what `wanted` does, however it is called; None where there is none."""
    return next((r for r in report.runs if r.config.repeat_of is None and same_choice(r.config, wanted)), None)


def without(config: RunConfig, setting: str) -> RunConfig:
    """`config` without the setting of that name; its name stays."""
    return replace(config, settings=tuple(item for item in config.settings if item.name != setting))


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

    def words(self) -> str:
        """Both names and steps: ``"default" to "benchmark" 26.2 ms to 15 ms``."""
        steps = f"{text(self.before.median, 'ns')} to {text(self.after.median, 'ns')}"
        return f"{quoted(self.off)} to {quoted(self.on)} {steps}"


def pairs(report: Report, flag: Flag) -> tuple[Pair, ...]:
    """All pairs of measured runs with a step time that differ in `flag` alone: the baseline's first, then the plain ones."""
    found = []
    for off in measured(report):
        on = counterpart(report, off, flag, True)
        if on is not None and on.failure is None and on.step_ns is not None and off.step_ns is not None:
            found.append(Pair(off, on, off.step_ns, on.step_ns))
    baseline = report.baseline()
    found.sort(key=lambda pair: (baseline is not pair.off and baseline is not pair.on, not pair.off.config.is_plain))
    return tuple(found)


def changed_flags(a: RunConfig, b: RunConfig) -> int:
    """How many flags and settings differ between two configurations."""
    flags = sum(getattr(a, flag) is not getattr(b, flag) for flag in _FLAGS)
    return flags + len({item.name for item in {*a.settings} ^ {*b.settings}})


def same_choice(a: RunConfig, b: RunConfig) -> bool:
    """Whether two configurations do the same, however they are called."""
    return changed_flags(a, b) == 0
