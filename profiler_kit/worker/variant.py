"""A configuration applied in the process that runs it: cuDNN's flags and what each axis does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from profiler_kit.configurations.axis import Axis
from profiler_kit.configurations.naming import axes_by_name, choices
from profiler_kit.errors import UsageError
from profiler_kit.loading import load
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import TargetJob
from profiler_kit.records.target import TargetSpec
from profiler_kit.worker import environment
from profiler_kit.worker.steps import Runner


def load_runner(job: TargetJob, *, ready: Callable[[], None] | None = None) -> Runner:
    """A runner of the target of `job`, built under its configuration; the step itself is changed by `configure`.

    `ready` is called once all is built on the host, before the device is touched. Raises KitError.
    """
    environment.apply(job.config)
    prepare(job.config, job.device)
    return Runner(load(changed_spec(job.config, job.spec), device=job.device, compiled=True, ready=ready))


def configure(runner: Runner, job: TargetJob) -> None:
    """Has `runner` run its steps under the configuration of `job`, on a device that is warm. Raises KitError."""
    change(job.config, runner)
    environment.prewarm(runner.device)
    environment.apply(job.config)  # the model's file may have set flags of its own on import
    prepare(job.config, job.device)


def prepare(config: RunConfig, device: str) -> None:
    """Sets up the process as the axes of `config` want it, and does not touch the device.

    Called before the target is loaded, and once more after that: its file may set the same. Raises KitError.
    """
    for axis, value in _axes(config):
        if axis.process is not None:
            axis.process(value, device)


def changed_spec(config: RunConfig, spec: TargetSpec) -> TargetSpec:
    """`spec` as the axes of `config` have it. Raises KitError."""
    for axis, value in _axes(config):
        if axis.spec is not None:
            spec = axis.spec(value, spec)
    return spec


def change(config: RunConfig, runner: Runner) -> None:
    """Changes what a step of `runner` does as the axes of `config` want it; to be called once, before the first step.

    What is compiled or captured is so in the first step. Raises KitError where an axis can't be had.
    """
    for axis, value in _axes(config):
        if axis.runner is not None:
            axis.runner(value, runner)


def _axes(config: RunConfig) -> Iterator[tuple[Axis, str]]:
    axes = axes_by_name()
    for item in sorted(config.settings, key=lambda item: item.name):
        if item.name not in axes:
            raise UsageError(f"configuration {config.name!r}: no axis {item.name!r}", hint=f"choose from {choices()}")
        yield axes[item.name], item.value
