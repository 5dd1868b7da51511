"""Static facts: what one step asks for, counted in one pass over meta tensors, without real compute."""

from __future__ import annotations

from typing import Final

from profiler_kit.counting.fold import by_module, by_op, by_phase, uncounted
from profiler_kit.counting.modules import describe_modules
from profiler_kit.counting.restore import unchanged
from profiler_kit.counting.step import trace_step
from profiler_kit.errors import KitError
from profiler_kit.records.counts import StaticCount
from profiler_kit.target import Target, explain_forward_failure

CONVENTION: Final = (
    "FLOP = 2 x MAC for contractions (bias free); pointwise 1 per output element; reductions 1 per input element"
)


def count_target(target: Target, *, memory: bool = True) -> StaticCount:
    """What one step of `target` asks for: FLOPs, MACs, operand bytes, saved tensors, parameters, per module and in all.

    The model is run once and left as it was. With `memory` the peak is estimated too, by a pass of its own.

    Raises: TargetError where the model cannot be run.
    """
    model = target.model
    try:
        with unchanged(model):
            trace = trace_step(target)
    except KitError:
        raise
    except Exception as error:
        raise explain_forward_failure(target, error) from error
    facts = describe_modules(model)
    phases = by_phase(trace.ops)
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
        ops=by_op(trace.ops),
        device=target.device.type,
        notes=(),
    )
