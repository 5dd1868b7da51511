"""Static reports: count, simulate memory, bound, explain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from profiler_kit.pipeline import roofs
from profiler_kit.pipeline.forecast import ends_told, simulated_device, with_memory, with_what_ifs
from profiler_kit.pipeline.packages import require_torch
from profiler_kit.pipeline.reports import explained, new_report
from profiler_kit.process.protocol import OnProgress, silent
from profiler_kit.records.counts import DEFAULT_CONVENTION, MemoryQuestions
from profiler_kit.records.report import Report
from profiler_kit.records.strict import require_counted
from profiler_kit.records.target import Mode, TargetSpec


def count(
    target: Any,
    *args: Any,
    loss_fn: Callable[..., Any] | None = None,
    mode: Mode = "train",
    kwargs: Mapping[str, Any] | None = None,
    convention: str = DEFAULT_CONVENTION,
    cross_check: bool = False,
    strict: bool = False,
    hardware: str | None = None,
) -> Report:
    """The static report of `target`: a model with its example inputs, a TARGET text, or a `TargetSpec`.

    A model is never changed: it is counted as a copy on the meta device. `convention` says what counts as work: ``kit``,
    ``torch``, ``fvcore`` or ``model-flops``. `cross_check` runs other counters on the model, and explains each difference.
    `hardware`: as in `count_spec`. Raises TargetError, UsageError, and with `strict` UncountedError where an op has no
    formula.
    """
    roofs.check(hardware)
    if isinstance(target, (str, TargetSpec)):
        spec = target
        if isinstance(spec, str):
            spec = TargetSpec(spec=spec, mode=mode, command=("count", ""))
        report = count_spec(spec, convention=convention, cross_check=cross_check, hardware=hardware)
    else:
        from profiler_kit.counting import count_both
        from profiler_kit.loading import from_model

        with ends_told(type(target).__name__):
            live = from_model(target, args, kwargs, loss_fn=loss_fn, mode=mode, device="meta")
            static, by_kit = with_memory(
                *count_both(live, convention, cross_check=cross_check), live, simulated_device()
            )
        report = explained(new_report(live.info, static), by_kit, _under(hardware, silent))
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
    asked: MemoryQuestions | None = None,
    say: OnProgress | None = None,
) -> Report:
    """The static report of the target that `spec` names; with `hardware`, bounded by its roofline.

    `gpu` names the device whose memory is predicted (None: the one that is here); `asked`: what else is asked about it.

    `hardware` is a device's name, or ``here`` for what this machine's device reaches: measured
    once, for some seconds, which `say` is told. Raises TargetError, UsageError.
    """
    roofs.check(hardware)
    require_torch()
    simulated = simulated_device(gpu)  # an unknown name ends here, before the target is loaded
    from profiler_kit.counting import count_both
    from profiler_kit.loading import load

    with ends_told(spec.spec):
        target = load(spec, device="meta")
        static, by_kit = with_memory(*count_both(target, convention, cross_check=cross_check), target, simulated)
        if asked is not None:
            price = roofs.recompute_price(hardware, target.info, say or silent)
            static = with_what_ifs(static, target, simulated, asked=asked, price=price, say=say or silent)
    report = new_report(target.info, static)  # now the info names the loss, which the first output settled
    return explained(report, by_kit, _under(hardware, say or silent))


def _under(hardware: str | None, say: OnProgress) -> Callable[[Report], Report]:
    return lambda report: roofs.under_hardware(report, hardware, say)
