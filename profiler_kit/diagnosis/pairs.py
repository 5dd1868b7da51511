"""Look up runs by their cuDNN flags and other settings, never by their names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from profiler_kit.diagnosis.phrases import quoted_name
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.units import text

Flag = Literal["benchmark", "deterministic", "allow_tf32"]
_FLAGS: Final = ("enabled", "benchmark", "deterministic", "allow_tf32")
# Settings that change neither the work nor the arithmetic of a layer, so that times can be compared layer by layer.
SAME_WORK_SETTINGS: Final = frozenset({"channels_last", "benchmark_limit"})
LIMIT_SETTINGS: Final = frozenset({"benchmark_limit", "memory_limit"})


def measured_runs(report: Report) -> tuple[ConfigRun, ...]:
    """Return the runs with samples in the report's order, without repeats of a configuration."""
    return tuple(run for run in report.runs if run.failure is None and run.config.repeat_of is None)


def plain_runs(report: Report) -> tuple[ConfigRun, ...]:
    """Return the measured runs whose configuration consists of cuDNN flags only."""
    return tuple(run for run in measured_runs(report) if run.config.is_plain)


def runs_with_settings(report: Report) -> tuple[ConfigRun, ...]:
    """Return the measured runs with settings other than cuDNN flags, such as ``channels_last``."""
    return tuple(run for run in measured_runs(report) if not run.config.is_plain)


def limits_algorithms(config: RunConfig) -> bool:
    """Return whether a setting limits the choice of algorithms. Such runs are not candidates for a faster step."""
    return any(config.setting(name) is not None for name in LIMIT_SETTINGS)


def preserves_layer_work(config: RunConfig) -> bool:
    """Return whether all settings leave the work and the arithmetic of every layer unchanged."""
    return {item.name for item in config.settings} <= SAME_WORK_SETTINGS


def counterpart(report: Report, run: ConfigRun, flag: Flag, value: bool) -> ConfigRun | None:
    """Return the run, failed or not, that differs from `run` only in that `flag` is `value`; None without one."""
    if getattr(run.config, flag) is not (not value) or run.config.enabled is False:
        return None
    return find_run(report, with_flag(run.config, flag, value))


def find_run(report: Report, config: RunConfig) -> ConfigRun | None:
    """Return the run, failed or not, with the flags and settings of `config`, under any name; None without one."""
    return next(
        (r for r in report.runs if r.config.repeat_of is None and is_same_configuration(r.config, config)), None
    )


def without_setting(config: RunConfig, setting: str) -> RunConfig:
    """Return `config` without the setting called `setting`; the configuration keeps its name."""
    return replace(config, settings=tuple(item for item in config.settings if item.name != setting))


def with_flag(config: RunConfig, flag: Flag, value: bool) -> RunConfig:
    """Return `config` with `flag` set to `value`; the configuration keeps its name."""
    match flag:
        case "benchmark":
            return replace(config, benchmark=value)
        case "deterministic":
            return replace(config, deterministic=value)
        case "allow_tf32":
            return replace(config, allow_tf32=value)


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two measured runs that differ in one setting: `off` without it, `on` with it. `before`, `after`: their steps."""

    off: ConfigRun
    on: ConfigRun
    before: Interval
    after: Interval

    @classmethod
    def of(cls, off: ConfigRun, on: ConfigRun) -> RunPair:
        """Return the pair of two runs with step times."""
        assert off.step_ns is not None
        assert on.step_ns is not None
        return cls(off, on, off.step_ns, on.step_ns)

    def summary(self) -> str:
        """Return both names and steps: ``"default" to "benchmark": 26.2 ms to 15 ms``."""
        steps = f"{text(self.before.median, 'ns')} to {text(self.after.median, 'ns')}"
        return f"{quoted_name(self.off)} to {quoted_name(self.on)}: {steps}"


def flag_pairs(report: Report, flag: Flag) -> tuple[RunPair, ...]:
    """Return all pairs of measured runs that differ in `flag` only: pairs of the baseline first, then plain runs."""
    matching_pairs = []
    for off in measured_runs(report):
        on = counterpart(report, off, flag, True)
        if on is not None and on.failure is None and on.step_ns is not None and off.step_ns is not None:
            matching_pairs.append(RunPair.of(off, on))
    baseline = report.baseline()
    matching_pairs.sort(
        key=lambda pair: (baseline is not pair.off and baseline is not pair.on, not pair.off.config.is_plain)
    )
    return tuple(matching_pairs)


def count_differences(a: RunConfig, b: RunConfig) -> int:
    """Return the number of flags and settings that differ between two configurations."""
    flags = sum(getattr(a, flag) is not getattr(b, flag) for flag in _FLAGS)
    return flags + len({item.name for item in {*a.settings} ^ {*b.settings}})


def is_same_configuration(a: RunConfig, b: RunConfig) -> bool:
    """Return whether two configurations have the same flags and settings, under any names."""
    return count_differences(a, b) == 0
