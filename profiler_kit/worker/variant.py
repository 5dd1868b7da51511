"""Applies a configuration in the process that runs it: cuDNN's flags, and each axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from profiler_kit.configurations.axis import Axis
from profiler_kit.configurations.naming import axes_by_name, config_choices
from profiler_kit.errors import UsageError
from profiler_kit.loading import load
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import RunJob, TargetJob
from profiler_kit.records.target import TargetSpec
from profiler_kit.worker import environment, parallel
from profiler_kit.worker.steps import Runner


def load_runner(job: TargetJob, *, ready: Callable[[], None] | None = None) -> Runner:
    """A runner of the job's target, built under its configuration. `configure` then changes the step.

    `ready` is called when everything is built on the host, before the device is used. Raises KitError.
    """
    environment.apply_flags(job.config)
    apply_to_process(job.config, job.device)
    with environment.threads_limited(job.building_threads if isinstance(job, RunJob) else None):
        target = load(apply_to_spec(job.config, job.spec), device=job.device, compiled=True, on_built=ready)
    member = job.member if isinstance(job, RunJob) else None
    if member is None:
        return Runner(target)
    parallel.join_job(member, target.device)
    if member.plan.strategy == "fsdp2":
        return Runner(parallel.sharded(target))  # the optimizer holds the sharded parameters
    runner = Runner(target)
    runner.replace_module(parallel.replicated(target, job.config))
    return runner


def configure(runner: Runner, job: TargetJob) -> None:
    """Make `runner` run its steps under the job's configuration, on a warm device. Raises KitError."""
    apply_to_steps(job.config, runner)
    runner.redirect_moves()
    environment.prewarm(runner.device)
    environment.apply_flags(job.config)  # the model's file may have set flags of its own on import
    apply_to_process(job.config, job.device)


def apply_to_process(config: RunConfig, device: str) -> None:
    """Apply the axes of `config` to the process, without using the device.

    Called before and after loading the target, because its file may change the same settings. Raises KitError.
    """
    for axis, value in _axes(config):
        if axis.process is not None:
            axis.process(value, device)


def apply_to_spec(config: RunConfig, spec: TargetSpec) -> TargetSpec:
    """`spec` with the axes of `config` applied. Raises KitError."""
    for axis, value in _axes(config):
        if axis.spec is not None:
            spec = axis.spec(value, spec)
    return spec


def apply_to_steps(config: RunConfig, runner: Runner) -> None:
    """Apply the axes of `config` to the steps of `runner`. Call it once, before the first step.

    Compilation and capture happen in the first step. Raises KitError if an axis is not supported.
    """
    for axis, value in _axes(config):
        if axis.runner is not None:
            axis.runner(value, runner)


def _axes(config: RunConfig) -> Iterator[tuple[Axis, str]]:
    axes = axes_by_name()
    for item in sorted(config.settings, key=lambda item: item.name):
        if item.name not in axes:
            raise UsageError(
                f"configuration {config.name!r}: no axis {item.name!r}", hint=f"choose from {config_choices()}"
            )
        yield axes[item.name], item.value
