"""Memory predictions: adds the memory of a step, what-ifs and measured workspaces to a count."""

from __future__ import annotations

import contextlib
import copy
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler_kit.devices.device import Device
from profiler_kit.devices.registry import DEFAULT_DEVICE, architecture_names, devices, find_device
from profiler_kit.errors import KitError
from profiler_kit.pipeline.target_errors import COUNT_TIMEOUT_S, as_target_errors
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.counts import Forecast, MemoryEstimate, MemoryOptions, SettingForecast, StaticCount
from profiler_kit.records.notes import Note
from profiler_kit.records.parallel import ParallelPlan
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetInfo, TargetSpec

if TYPE_CHECKING:
    from profiler_kit.loading import Target
    from profiler_kit.memory import Setup

# Errors that running the user's code again, or an optimizer, may raise. The count remains valid without the memory.
EXPECTED: Final = (
    ArithmeticError, AssertionError, AttributeError, KitError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip

MEASURED_NOTE: Final = "the peaks measured on the device are not affected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A target with its counts, before any measurement.

    `static` is the count in the requested convention, `by_kit` the count in the kit's convention. Both and `target` are None
    if the target was loaded but could not be counted; a note of `info` gives the reason.
    """

    info: TargetInfo
    static: StaticCount | None = None
    by_kit: StaticCount | None = None
    target: Target | None = None


def counted_if_possible(spec: TargetSpec, convention: str, device: str, timeout_s: float | None = None) -> Counted:
    """Load and count the target that will be measured on `device`; the result has no counts if counting fails.

    Counting fails for control flow that depends on values, and for bugs in the counting code. Neither may prevent the
    measurement. Errors of the target itself are raised, because the measurement would fail in the same way. `timeout_s` limits
    loading and counting (default: `COUNT_TIMEOUT_S`).
    """
    from profiler_kit.counting import count_by_conventions
    from profiler_kit.loading import NeedsDataError, load
    from profiler_kit.user_code.locations import is_out_of_memory, one_line_message

    with as_target_errors(spec.spec, timeout_s or COUNT_TIMEOUT_S):
        target = load(spec, device="meta")
        try:
            simulated = simulated_device(torch_device=device)
            counts = count_by_conventions(target, convention, device=simulated)
            static, by_kit = with_memory(*counts, target, simulated, is_measured=True)
        except NeedsDataError as error:
            # The hint of the error is about counting alone: it suggests to measure, which comes next.
            note = f"Not counted; the measurements are not affected: {_short_message(error)}"
        except KitError:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise
            frame = traceback.extract_tb(error.__traceback__)[-1]
            note = (
                f"Not counted because of an internal error in profiler_kit, please report it: {one_line_message(error)} "
                f"at {Path(frame.filename).name}:{frame.lineno}. The measurements are not affected."
            )
        else:
            info = target.info  # read after counting, because the first output determines the loss
            return Counted(info=info, static=static, by_kit=by_kit, target=target)
    return Counted(info=replace(target.info, notes=(*target.info.notes, Note(text=note))))


def with_memory(
    static: StaticCount,
    by_kit: StaticCount,
    target: Target,
    simulated: Device,
    *,
    is_measured: bool = False,
    is_selected: bool = False,
    host_factor: float = 1.0,
) -> tuple[StaticCount, StaticCount]:
    """Add the predicted memory of a step to both counts of `target`, or a note if it cannot be predicted.

    For a device that the user selected, or that is measured, also the predicted time of the step, on a host that takes
    `host_factor` times as long per op as the reference host.

    Without `is_selected`, the default device, which is simulated on a machine without one, is marked as such.

    With `is_measured`, the step also runs on the device, and notes about an inexact prediction say that measured peaks are
    not affected.
    """
    from profiler_kit.memory import Setup, simulate

    has_forecast = is_selected or is_measured
    forecast = None
    try:
        if has_forecast and simulated.is_cuda:
            memory, forecast = _simulated(target, simulated, Setup(), host_factor)
            if is_measured and forecast is not None:
                forecast = replace(forecast, settings=tuple(_with_settings(target, simulated)))
        else:
            memory = simulate(target, simulated)
        notes = static.notes
        if memory.device is not None and simulated is DEFAULT_DEVICE and not is_selected:
            memory = replace(memory, device=replace(memory.device, is_default=True))
        if is_measured and simulated.is_cuda and memory.traced_on != "meta":
            memory = replace(memory, notes=(*memory.notes, MEASURED_NOTE))
    except EXPECTED as error:
        reason = f"memory is not predicted: {_short_message(error)}"
        if is_measured and simulated.is_cuda:
            reason += f"; {MEASURED_NOTE}"
        memory, notes = None, (*static.notes, reason)
    with_estimate = replace(static, memory=memory, forecast=forecast, notes=notes)
    is_kit = static is by_kit
    return with_estimate, with_estimate if is_kit else replace(by_kit, memory=memory, forecast=forecast)


def _simulated(
    target: Target, device: Device, setup: Setup, host_factor: float = 1.0
) -> tuple[MemoryEstimate, Forecast | None]:
    """The memory of a step of `target` on `device`, and its predicted time."""
    from profiler_kit.forecast.step import forecast_step
    from profiler_kit.forecast.work import Arithmetic
    from profiler_kit.memory import settings_of_process, simulate_step

    memory, calls = simulate_step(target, device, replace(setup, records_calls=True))
    config = settings_of_process()  # those that the user's file has set
    arithmetic = Arithmetic(tf32_products=config.matmul_tf32, tf32_convolutions=config.conv_tf32)
    return memory, forecast_step(calls, device, arithmetic, host_factor)


def _with_settings(target: Target, device: Device) -> Iterator[SettingForecast]:
    """The predicted kernel time of the step under bfloat16 autocast, where the target computes in float32 without it.

    Nothing where the step fails under autocast: whoever tries the setting sees the error.
    """
    from profiler_kit.memory import Setup

    if target.spec.amp is not None or target.spec.dtype not in (None, "float32"):
        return
    under_autocast = copy.copy(target)
    under_autocast.spec = replace(target.spec, amp="bfloat16")
    with contextlib.suppress(*EXPECTED):
        _, forecast = _simulated(under_autocast, device, Setup())
        if forecast is not None:
            yield SettingForecast(setting="amp_bf16", kernel_ns=forecast.kernel_ns)


def with_measured_workspaces(runs: Sequence[ConfigRun], counted: Counted, device: str) -> list[ConfigRun]:
    """Predict the memory of each run again with the library workspaces that its probe measured on `device`.

    The probe's single calls are removed, because nothing else needs them. Runs without a probe do not change. If the step
    cannot be simulated, no run gets a prediction; a note of the count gives the reason.
    """
    from profiler_kit.memory import LibraryConfig, simulate_measured

    target, static = counted.target, counted.by_kit
    probes = [
        (run.memory, LibraryConfig(cudnn=run.config.enabled is not False))
        for run in runs
        if run.memory is not None
        and run.memory.calls
        and run.config.is_plain  # other configurations run a different step
    ]
    probed = simulated_device(torch_device=device)
    predicted_memories = []
    failure = ""
    if probes and probed.is_cuda and target is not None and static is not None and static.memory is not None:
        try:
            predicted_memories = list(simulate_measured(target, probed, probes))
        except EXPECTED as error:
            failure = f"memory is not predicted with measured workspaces: {_short_message(error)}"
    updated_runs, predictions = [], iter(predicted_memories)
    for run in runs:
        if run.memory is not None and run.memory.calls:
            predicted = next(predictions, None) if run.config.is_plain else None
            slim = replace(predicted, timeline=()) if predicted is not None else None
            notes = (*run.notes, failure) if failure else run.notes
            run = replace(run, predicted=slim, memory=replace(run.memory, calls=()), notes=notes)
        updated_runs.append(run)
    return updated_runs


def with_what_ifs(
    static: StaticCount,
    target: Target,
    simulated: Device,
    *,
    memory_options: MemoryOptions,
    recompute_ns: Callable[[StaticCount], float | None],
    on_progress: OnProgress,
) -> StaticCount:
    """Add the answers to `memory_options` about memory to the count of `target`.

    `recompute_ns` returns a lower bound of the time that a count's recomputation takes, or None.

    Raises:
        UsageError: a path is not the path of a module.
    """
    from profiler_kit.counting import count_target
    from profiler_kit.memory.what_if_study import WhatIfStudy
    from profiler_kit.meta.checkpointing import checkpointed

    def count_checkpointed(variant: Target, paths: tuple[str, ...]) -> StaticCount:
        with checkpointed(variant.model, paths):
            return count_target(variant, device=simulated)

    if static.memory is None:
        return static  # a note gives the reason
    rebuild = target.rebuild
    assert rebuild is not None  # a target loaded from a spec can be rebuilt
    study = WhatIfStudy(
        target=target,
        device=simulated,
        static=static,
        rebuild=lambda options: rebuild("meta", **options),
        simulate=_simulated,
        count=count_checkpointed,
        fits_bytes=memory_options.fits_bytes,
        batch=target.spec.batch,
        recompute_ns=recompute_ns,
        on_progress=on_progress,
    )
    answers = tuple(study.answers(memory_options))
    return replace(static, memory=replace(static.memory, what_ifs=answers, what_if_notes=tuple(study.notes)))


def with_parallel(static: StaticCount, target: Target, plans: Sequence[ParallelPlan]) -> StaticCount:
    """Add the predictions for one rank of several to the count of `target`. Raises UsageError, TargetError."""
    from profiler_kit.memory.parallel import simulate_parallel

    if static.memory is None:
        return static  # a note gives the reason
    parallel = simulate_parallel(target, plans, static.memory)
    return replace(static, memory=replace(static.memory, parallel=parallel))


def simulated_device(gpu: str | None = None, torch_device: str | None = None) -> Device:
    """The device whose memory is predicted: the device named `gpu`, or `torch_device` (``cuda:0``), or this machine's device.

    Raises UsageError with the choices for an unknown `gpu`. Does not import torch if `gpu` is set.
    """
    if gpu is not None:
        return find_device(gpu, "--gpu", devices(), also=f"; or an architecture: {architecture_names()}")
    from profiler_kit.memory import local_device

    return local_device(torch_device)


def _short_message(error: BaseException) -> str:
    """`error` in one line: the message of a KitError, otherwise the type and the message."""
    from profiler_kit.user_code.locations import one_line_message

    return error.place_and_message if isinstance(error, KitError) else one_line_message(error)
