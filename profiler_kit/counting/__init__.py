"""Static facts: what one step asks for, counted in one pass over meta tensors, without real compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from profiler_kit.counting.conventions import Convention, by_name
from profiler_kit.counting.cross_check import cross_checks
from profiler_kit.counting.fold import by_module, by_op, by_phase, coverage_percent, uncounted
from profiler_kit.counting.memo import Memo, memo_beside
from profiler_kit.counting.modules import describe_modules
from profiler_kit.counting.own_ops import load_entry_points
from profiler_kit.counting.step import StepTrace, trace_step
from profiler_kit.counting.watch import output_tensors
from profiler_kit.loading import Target
from profiler_kit.loading.compiled import nothing_compiled
from profiler_kit.loading.kinds import StepError, on_first_kind
from profiler_kit.loading.restore import unchanged
from profiler_kit.records.counts import DEFAULT_CONVENTION, StaticCount

_NO_HOOKS: Final = "saved tensor hooks"  # what torch.func.grad, vjp, jacrev and hessian do not run beside


def count_target(target: Target, *, convention: str = DEFAULT_CONVENTION) -> StaticCount:
    """What one step of `target` asks for: FLOPs, MACs, operand bytes, saved tensors, parameters, per module and in all.

    The model runs once, as it is written where it is compiled; it is left as it was. One whose control flow depends on
    values is counted on another kind of tensors, at last on real ones (see `loading.kinds`); a note says so, and why.
    `convention` names the definition of MACs and FLOPs (see `conventions`); bytes are the same under all.

    Raises: TargetError where the model cannot be run, UsageError for an unknown convention.
    """
    return _counted(target, by_name(convention))


def count_both(
    target: Target, convention: str = DEFAULT_CONVENTION, *, cross_check: bool = False
) -> tuple[StaticCount, StaticCount]:
    """The count by `convention`, and the kit's own, on which findings and rooflines rest whatever is shown.

    With `cross_check` other counters run on the model too, and both counts hold what they said.

    Raises: as `count_target`.
    """
    by_name(convention)
    by_kit = _counted(target, by_name(DEFAULT_CONVENTION), cross_check=cross_check)
    if convention == DEFAULT_CONVENTION:
        return by_kit, by_kit
    shown = count_target(target, convention=convention)
    return replace(shown, cross_checks=by_kit.cross_checks), by_kit


def _counted(target: Target, convention: Convention, *, cross_check: bool = False) -> StaticCount:
    load_entry_points()
    with nothing_compiled():
        found = on_first_kind(target, lambda one: _count(one, convention, cross_check=cross_check))
    notes = (*found.value.notes, *((f"counted {found.note}",) if found.note else ()))
    return replace(found.value, device=found.kind, notes=notes)


def _count(target: Target, convention: Convention, *, cross_check: bool) -> StaticCount:
    trace, notes = _traced(target, memo_beside(_get_current_dispatch_mode_stack()), convention)
    facts = describe_modules(target.model)
    phases = by_phase(trace.ops)
    totals = by_op(trace.ops)
    return StaticCount(
        convention=convention.sentence,
        convention_name=convention.name,
        params=sum(fact.params for fact in facts),
        trainable_params=sum(fact.trainable_params for fact in facts),
        param_bytes=sum(fact.param_bytes for fact in facts),
        forward=phases["forward"],
        loss=phases["loss"],
        backward=phases["backward"],
        recompute=phases["recompute"],
        saved_bytes=sum(item.tensor.nbytes for item in trace.saved),
        uncounted=uncounted(trace.ops),
        modules=by_module(facts, trace.ops, trace.calls, trace.saved, target.info.loss),
        ops=totals,
        torch=torch.__version__,
        notes=notes,
        coverage_percent=coverage_percent(totals),
        cross_checks=cross_checks(target, trace.ops) if cross_check else (),
    )


def _traced(target: Target, memo: Memo, convention: Convention) -> tuple[StepTrace, tuple[str, ...]]:
    with unchanged(target.model, inputs=output_tensors([target.batch.args, target.batch.kwargs])):
        try:
            return trace_step(target, memo, convention), ()
        except StepError as failed:
            if _NO_HOOKS not in str(failed.error):
                raise
        trace = trace_step(target, memo, convention, watch_saved=False)
    return trace, ("saved bytes are not known: torch.func's derivatives let nobody watch what is saved",)
