"""Static count of one training step: FLOPs, bytes and saved tensors, from one pass over meta tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from profiler_kit.counting.conventions import Convention, find_convention
from profiler_kit.counting.custom_ops import load_entry_points
from profiler_kit.counting.device_kernels import attention_note
from profiler_kit.counting.modules import describe_modules, paths_of_torch, settings_by_path
from profiler_kit.counting.operands import OpFacts
from profiler_kit.counting.step import StepTrace, trace_step
from profiler_kit.counting.totals import by_module, by_op, by_phase, coverage_percent, uncounted_ops
from profiler_kit.devices.device import Device
from profiler_kit.loading import Target
from profiler_kit.loading.messages import reports
from profiler_kit.loading.tensor_kinds import StepError, run_on_first_kind
from profiler_kit.meta.bounds import collected_bounds
from profiler_kit.meta.eager import compilation_disabled
from profiler_kit.meta.emulation import raised_in_replacement
from profiler_kit.meta.op_memo import Memo, memo_for_modes
from profiler_kit.meta.values import ValuesNeededError
from profiler_kit.records.counts import DEFAULT_CONVENTION, CrossCheck, OpRecord, StaticCount
from profiler_kit.user_code.locations import one_line_message
from profiler_kit.user_code.restoration import restored

# torch.func.grad, vjp, jacrev and hessian raise an error with this text when saved-tensor hooks are active.


def count_target(target: Target, *, convention: str = DEFAULT_CONVENTION, device: Device | None = None) -> StaticCount:
    """Count FLOPs, MACs, operand bytes, saved tensors and parameters of one step of `target`, per module and in total.

    The model runs once and is restored afterwards. Compiled parts run uncompiled. A model whose control flow depends on
    tensor values is counted on another kind of tensors (see `loading.tensor_kinds`), and a note names the reason.
    `convention` names the definition of MACs and FLOPs (see `conventions`). Bytes are the same under every convention.
    Bytes and saved tensors are those of the kernels of `device`, or without one those of torch's decompositions.

    Raises: TargetError if the model cannot run, UsageError for an unknown convention.
    """
    return _count_on_first_kind(target, find_convention(convention), device)


def count_by_conventions(
    target: Target, convention: str = DEFAULT_CONVENTION, *, device: Device | None = None, cross_check: bool = False
) -> tuple[StaticCount, StaticCount]:
    """Return two counts: by `convention`, and by the ``kit`` convention. Findings and rooflines always use the second.

    With `cross_check`, fvcore runs on the model too, and both counts include its result.

    Raises: as `count_target`.
    """
    find_convention(convention)  # a wrong name fails before the model runs
    by_kit = _count_on_first_kind(target, find_convention(DEFAULT_CONVENTION), device, cross_check=cross_check)
    if convention == DEFAULT_CONVENTION:
        return by_kit, by_kit
    by_convention = count_target(target, convention=convention, device=device)
    return replace(by_convention, cross_checks=by_kit.cross_checks), by_kit


def _count_on_first_kind(
    target: Target, convention: Convention, device: Device | None, *, cross_check: bool = False
) -> StaticCount:
    load_entry_points()
    with compilation_disabled():
        result = run_on_first_kind(target, lambda variant: _count(variant, convention, device, cross_check=cross_check))
    notes = (*result.value.notes, *((f"counted {result.note}",) if result.note else ()))
    return replace(result.value, device=result.kind, notes=notes)


def _count(target: Target, convention: Convention, device: Device | None, *, cross_check: bool) -> StaticCount:
    settings = settings_by_path(target.model)
    with restored(target) as saved, collected_bounds() as bounds:
        trace, notes = _trace(target, convention, device, saved.restart)
        # with the layers that forward has created
        modules, of_torch = describe_modules(target.model, settings), paths_of_torch(target.model)
        if iterators := saved.read_iterators():
            names = ", ".join(iterators)
            notes += (f"forward reads iterators that cannot be rewound, so each pass takes further items: {names}",)
    phases = by_phase(trace.ops)
    totals = by_op(trace.ops)
    return StaticCount(
        convention=convention.sentence,
        convention_name=convention.name,
        params=sum(module.params for module in modules),
        trainable_params=sum(module.trainable_params for module in modules),
        param_bytes=sum(module.param_bytes for module in modules),
        forward=phases["forward"],
        loss=phases["loss"],
        backward=phases["backward"],
        recompute=phases["recompute"],
        saved_bytes=sum(item.tensor.nbytes for item in trace.saved),
        uncounted=uncounted_ops(trace.ops),
        modules=by_module(modules, of_torch, trace.ops, trace.calls, trace.saved, target.info.loss),
        ops=totals,
        torch=torch.__version__,
        notes=notes,
        coverage_percent=coverage_percent(totals),
        cross_checks=_cross_checks(target, trace.ops) if cross_check else (),
        kernels_of=None if trace.kernels_of is None else trace.kernels_of.label,
        attention=trace.attention,
        autocast=trace.autocast,
        bounds=tuple(bounds),
    )


def _cross_checks(target: Target, ops: Sequence[OpRecord]) -> tuple[CrossCheck, ...]:
    from profiler_kit.counting.fvcore_check import cross_check

    return (cross_check(target, ops),)


def _trace(
    target: Target, convention: Convention, device: Device | None, restart: Callable[[], None]
) -> tuple[StepTrace, tuple[str, ...]]:
    """The step's records and the limits of the count. `restart` is called before a step that repeats a failed one."""

    def run_again(device: Device | None, *, watch_saved: bool = True) -> StepTrace:
        restart()
        return run(device, watch_saved=watch_saved)

    def run(device: Device | None, *, watch_saved: bool = True) -> StepTrace:
        memo: Memo[OpFacts] = memo_for_modes(_get_current_dispatch_mode_stack())
        return trace_step(target, memo, convention, device=device, watch_saved=watch_saved)

    notes: list[str] = []
    try:
        trace = run(device)
    except StepError as failure:
        if reports(failure.error, "hooks_refused"):
            notes.append("saved bytes are unknown: torch.func derivatives do not allow saved-tensor hooks")
            trace = run_again(device, watch_saved=False)
        elif isinstance(failure.error, ValuesNeededError):
            raise
        elif device is not None and raised_in_replacement(failure.error):
            reason = one_line_message(failure.error)
            notes.append(
                f"bytes and saved tensors are not those of {device.label}, whose kernels reject the step: {reason}"
            )
            try:
                trace = run_again(None)
            except StepError:
                raise failure from failure.error
        else:
            raise
    amp = target.spec.amp
    if amp is not None and trace.autocast is None:
        notes.append(f"--amp {amp}: static byte counts do not include autocast, which meta tensors of the CPU ignore")
    if trace.attention and trace.kernels_of is not None:
        notes.append(attention_note(trace.attention, trace.kernels_of))
    return trace, (*notes, *trace.notes)
