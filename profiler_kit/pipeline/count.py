"""Static reports: count, predict memory, add rooflines, explain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from profiler_kit.pipeline import rooflines
from profiler_kit.pipeline.memory_prediction import (
    simulated_device,
    with_memory,
    with_parallel,
    with_what_ifs,
)
from profiler_kit.pipeline.packages import collection_paused, require_torch
from profiler_kit.pipeline.python_options import for_python, python_errors, refuse_loss_and_labels
from profiler_kit.pipeline.reports import new_report, with_findings
from profiler_kit.pipeline.target_errors import COUNT_TIMEOUT_S, as_target_errors
from profiler_kit.process.protocol import OnProgress, ignore_progress
from profiler_kit.records.counts import DEFAULT_CONVENTION, MemoryOptions
from profiler_kit.records.parallel import ParallelPlan
from profiler_kit.records.report import Report
from profiler_kit.records.target import Mode, TargetSpec
from profiler_kit.records.uncounted import require_counted


def count(
    target: Any,
    *args: Any,
    loss_fn: Callable[..., Any] | None = None,
    labels: Any = (),
    mode: Mode = "train",
    kwargs: Mapping[str, Any] | None = None,
    convention: str = DEFAULT_CONVENTION,
    cross_check: bool = False,
    strict: bool = False,
    hardware: str | None = None,
) -> Report:
    """Count `target` and return the static report.

    `target` is a model, followed by its example inputs `args` and `kwargs`; a TARGET text; or a `TargetSpec`. A model is
    not changed: a copy on the meta device is counted. `labels` are those of ``loss_fn(output, *labels)``: a tensor or a tuple.
    `convention` is ``kit``, ``torch``, ``fvcore`` or ``model-flops``.
    `cross_check` also runs fvcore on the forward pass. `hardware` is the same as in `count_spec`.

    Raises:
        TargetError: the target cannot be loaded or counted.
        UsageError: an argument is invalid.
        UncountedError: with `strict`, if an op has no formula.
    """
    rooflines.check_hardware(hardware)
    if isinstance(target, (str, TargetSpec)):
        refuse_loss_and_labels(loss_fn, labels)
        spec = TargetSpec(spec=target, mode=mode, command=("count", "")) if isinstance(target, str) else target
        report = count_spec(spec, convention=convention, cross_check=cross_check, hardware=hardware)
    else:
        from profiler_kit.counting import count_by_conventions
        from profiler_kit.loading import from_model

        with python_errors(), as_target_errors(type(target).__name__):
            live = from_model(
                target, args, kwargs, loss_fn=loss_fn, labels=labels, mode=mode, device="meta", command=("count", "")
            )
            gpu = rooflines.datasheet_name(hardware)
            simulated = simulated_device(gpu)
            counts = count_by_conventions(live, convention, device=simulated, cross_check=cross_check)
            static, by_kit = with_memory(*counts, live, simulated, is_selected=gpu is not None)
        report = with_findings(new_report(live.info, static), by_kit, _with_roofline(hardware, ignore_progress))
        report = for_python(report)
    if strict:
        require_counted(report)
    return report


def count_spec(
    spec: TargetSpec,
    *,
    convention: str = DEFAULT_CONVENTION,
    cross_check: bool = False,
    hardware: str | None = None,
    gpu: str | None = None,
    host_factor: float = 1.0,
    memory_options: MemoryOptions | None = None,
    parallel: Sequence[ParallelPlan] = (),
    timeout_s: float | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Report:
    """Count the target of `spec` and return the static report.

    `gpu` selects the device whose kernels are counted and whose memory is predicted (None: the device of `hardware`, or of this
    machine). `host_factor`: that of ``env --host``, for the predicted time. `memory_options` requests further memory
    predictions, `parallel` those for one rank of several. `hardware` adds rooflines: a device name for its datasheet peaks, or
    ``here`` for the measured peaks of this machine, which are measured once and take some seconds. `timeout_s` limits loading
    and counting (default: `COUNT_TIMEOUT_S`).

    Raises:
        TargetError, UsageError
    """
    rooflines.check_hardware(hardware)
    require_torch()
    on_progress("importing torch")
    gpu = gpu or rooflines.datasheet_name(hardware)
    with collection_paused():
        simulated = simulated_device(gpu)  # reports an unknown name before the target is loaded
        from profiler_kit.counting import count_by_conventions
        from profiler_kit.loading import load
        from profiler_kit.loading.inference_hint import inference_as_hint
        from profiler_kit.loading.progress import progress_to

    with as_target_errors(spec.spec, timeout_s or COUNT_TIMEOUT_S), progress_to(on_progress):
        on_progress(f"loading {spec.spec}")
        target = load(spec, device="meta")
        on_progress("counting")
        with inference_as_hint(target):
            counts = count_by_conventions(target, convention, device=simulated, cross_check=cross_check)
        on_progress("predicting memory")
        is_selected = gpu is not None or memory_options is not None
        static, by_kit = with_memory(*counts, target, simulated, is_selected=is_selected, host_factor=host_factor)
        if memory_options is not None:
            recompute_ns = rooflines.recompute_time(hardware, target.info, on_progress)
            static = with_what_ifs(
                static,
                target,
                simulated,
                memory_options=memory_options,
                recompute_ns=recompute_ns,
                on_progress=on_progress,
            )
        if parallel:
            on_progress("predicting the memory of ranks")
            static = with_parallel(static, target, parallel)
    report = new_report(target.info, static)  # the first output has determined the loss in the info by now
    return with_findings(report, by_kit, _with_roofline(hardware, on_progress))


def _with_roofline(hardware: str | None, on_progress: OnProgress) -> Callable[[Report], Report]:
    return lambda report: rooflines.with_hardware_roofline(report, hardware, on_progress)
