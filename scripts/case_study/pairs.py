"""Pairs of runs that differ in one setting: their difference by profiler_kit's verdict, and the break-even of the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.configurations.naming import DEFAULT_CONFIG, parse_config
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.report import Report, Tool
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Difference, Interval
from profiler_kit.records.target import TargetInfo
from profiler_kit.records.traces import TraceSummary
from profiler_kit.statistics.noise import Noise, break_even_steps, noise_of
from scripts.case_study.figures import Figures, RunFigures

_DEFAULT: Final = RunConfig(name=DEFAULT_CONFIG, enabled=True, benchmark=False, deterministic=False, allow_tf32=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One model's runs without (`before`) and with (`after`) a setting, and the verdict on their times."""

    before: RunFigures
    after: RunFigures
    difference: Difference

    @property
    def before_ns(self) -> int:
        """The median step without the setting."""
        return step_interval(self.before).median

    @property
    def after_ns(self) -> int:
        """The median step with the setting."""
        return step_interval(self.after).median

    @property
    def saving(self) -> float:
        """The share of the step that the setting saves; negative if the step gets slower."""
        return self.difference.saved

    @property
    def faster(self) -> bool:
        """Whether the setting is surely faster."""
        return self.difference.outcome == "better"

    @property
    def slower(self) -> bool:
        """Whether the setting is surely slower."""
        return self.difference.outcome == "worse"

    def break_even_steps(self, min_saving: float) -> int | None:
        """Return the number of steps after which the algorithm search breaks even.

        None means never: the setting is not surely faster, or it saves a smaller share than `min_saving`.
        """
        if not self.faster or self.saving < min_saving:
            return None
        return break_even_steps(self.after.tuning_ns, step_interval(self.before), step_interval(self.after))


def step_interval(run: RunFigures) -> Interval:
    """Return the step interval of a run that has samples."""
    assert run.step_ns is not None
    return run.step_ns


def make_pairs(figures: Figures, configs: Sequence[tuple[str, str]]) -> list[Pair]:
    """Return the pairs of all models. `configs` names the two configurations; both need samples."""
    pairs = []
    for model in figures.models():
        noise = model_noise(figures, model)
        for name_before, name_after in configs:
            before, after = figures.run(model, name_before), figures.run(model, name_after)
            if before is None or after is None:
                continue
            difference = noise.difference(_timed_run(before), _timed_run(after))
            if difference is not None:
                pairs.append(Pair(before=before, after=after, difference=difference))
    return pairs


def model_noise(figures: Figures, model: str) -> Noise:
    """Return the noise between fresh processes of `model`."""
    runs = tuple(
        _timed_run(run) for run in figures.runs if run.model == model and run.process == 1 and run.failure is None
    )
    target = TargetInfo(spec=model, name=model, inputs=(), mode="train", loss=None, optimizer=None)
    return noise_of(Report(tool=Tool(name="", version=""), created="", target=target, static=None, runs=runs))


def _timed_run(run: RunFigures) -> ConfigRun:
    """The part of a run that the verdict reads."""
    kernels_ns = [phase.kernel_ns for phase in run.phases if phase.kernel_ns is not None]
    config = parse_config(run.repeat_of or run.config, _DEFAULT)
    return ConfigRun(
        config=replace(config, name=run.config, repeat_of=run.repeat_of),
        step_ns=run.step_ns if run.failure is None else None,
        further_repeats=tuple(Repeat(step_ns=step) for step in run.repeats),
        traced=TraceSummary(
            file="",
            clock="device" if run.clock == "kernel" else "host",
            span_ns=0,
            busy_ns=sum(kernels_ns),
            idle_ns=0,
            sum_ns=sum(kernels_ns),
            unattributed_ns=sum(kernels_ns),
        )
        if run.clock is not None and kernels_ns
        else None,
    )
