"""Static facts: what one step asks for, counted in one pass over meta tensors, without real compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from profiler_kit.counting.fold import by_module, by_op, by_phase, coverage_percent, uncounted
from profiler_kit.counting.memory import estimate_memory
from profiler_kit.counting.modules import describe_modules
from profiler_kit.counting.restore import unchanged
from profiler_kit.counting.step import StepError, StepTrace, trace_step
from profiler_kit.counting.watch import output_tensors
from profiler_kit.errors import KitError, TargetError
from profiler_kit.records.counts import MemoryEstimate, StaticCount
from profiler_kit.target import NeedsDataError, Target, explain_forward_failure, load
from profiler_kit.target.command import IN_PYTHON
from profiler_kit.target.place import first_line, user_place

CONVENTION: Final = "kit: FLOP = 2 x MAC, bias free; pointwise 1 per output element; reductions 1 per input element"

# What a second run of the user's code, or an optimizer, may raise on tensors without data. The count stands without it.
_EXPECTED_OF_MEMORY: Final = (
    ArithmeticError, AssertionError, AttributeError, KitError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


def count_target(target: Target, *, memory: bool = True) -> StaticCount:
    """What one step of `target` asks for: FLOPs, MACs, operand bytes, saved tensors, parameters, per module and in all.

    The model runs once, and with `memory` twice more for the peak; it is left as it was. One whose control flow depends
    on values is counted on the CPU instead, with real compute, where the target can be built anew; a note says so.

    Raises: TargetError where the model cannot be run.
    """
    try:
        trace = _traced(target)
    except StepError as failed:
        told = explain_forward_failure(target, failed.error)
        if isinstance(told, NeedsDataError) and target.device.type == "meta" and target.spec.spec != IN_PYTHON:
            note = f"counted on the CPU, with real compute: {told.where or 'the model'}: {told.message}"
            count = count_target(load(target.spec, device="cpu"), memory=memory)
            return replace(count, notes=(note, *count.notes))
        if failed.phase == "backward" and not isinstance(told, NeedsDataError):
            told = TargetError(
                f"backward raised {first_line(failed.error)}",
                where=user_place(failed.error) or target.spec.spec,
                hint="check in-place changes and custom autograd functions, or take --mode infer",
            )
        raise told from failed.error
    estimate, notes = _estimated(target) if memory else (None, ())
    facts = describe_modules(target.model)
    phases = by_phase(trace.ops)
    totals = by_op(trace.ops)
    return StaticCount(
        convention=CONVENTION,
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
        memory=estimate,
        device=target.device.type,
        notes=notes,
        coverage_percent=coverage_percent(totals),
    )


def _traced(target: Target) -> StepTrace:
    with unchanged(target.model, inputs=output_tensors([target.batch.args, target.batch.kwargs])):
        return trace_step(target)


def _estimated(target: Target) -> tuple[MemoryEstimate | None, tuple[str, ...]]:
    try:
        return estimate_memory(target), ()
    except _EXPECTED_OF_MEMORY as error:
        return None, (f"memory is not estimated: {first_line(error)}",)
