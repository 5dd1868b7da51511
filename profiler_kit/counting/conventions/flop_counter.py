"""The convention of torch's own counter: the formulas that are registered with `FlopCounterMode`.

The formulas come from the installed torch, with its gaps and errors, and from calls of
``torch.utils.flop_counter.register_flop_formula``.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from profiler_kit.counting.conventions import Convention, OpCall, with_work
from profiler_kit.counting.formulas import find_formula
from profiler_kit.counting.operands import argument_places
from profiler_kit.errors import KitError
from profiler_kit.meta.values import known_values
from profiler_kit.records.counts import Cost

_COMPOSITE: Final = "CompositeImplicitAutograd"


def op_cost(call: OpCall) -> Cost | None:
    """FLOPs by the registered formula and half as many MACs; zero without a formula; None for an op the kit does not know.

    Raises: KitError if the formula rejects the call, as it would in FlopCounterMode.
    """
    packet = call.op.overloadpacket if isinstance(call.op, OpOverload) else call.op
    formula = flop_registry.get(packet)
    if formula is not None:
        try:
            args, kwargs = with_known_values(call)
            flops = int(formula(*args, **kwargs, out_val=call.out))
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise KitError(
                f"torch's formula for {packet} rejects this call: {type(error).__name__}: {error}",
                hint="FlopCounterMode fails in the same way; count with --convention kit",
            ) from error
        return with_work(call.kit_cost, macs=flops // 2, flops=flops)
    if isinstance(call.op, OpOverload) and is_composite(call.op):
        flops = _decomposed_flops(call)
        return with_work(call.kit_cost, macs=flops // 2, flops=flops)
    return None if call.kit_cost is None else with_work(call.kit_cost, macs=0)


def with_known_values(call: OpCall) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `call`, with real tensors for those whose values the kit's formula reads, as on a device."""
    kit_formula = find_formula(str(call.op)) if isinstance(call.op, OpOverload) else None
    if kit_formula is None or not kit_formula.reads:
        return call.args, call.kwargs
    places = argument_places(call.op, kit_formula.reads)

    def known(place: int | str, value: Any) -> Any:
        values = known_values(value) if place in places and isinstance(value, torch.Tensor) else None
        return value if values is None else values

    with no_dispatch():
        args = tuple(known(place, value) for place, value in enumerate(call.args))
        return args, {name: known(name, value) for name, value in call.kwargs.items()}


def is_composite(op: OpOverload) -> bool:
    """Whether the op is a composite of other ops. Only inference mode dispatches composites; FlopCounterMode decomposes them."""
    overload = op._schema.overload_name
    name = f"{op._schema.name}.{overload}" if overload else op._schema.name
    # a name that is not in the dispatcher (prim::device, called on fake tensors) has no kernels to look up
    return torch._C._dispatch_has_kernel(name) and torch._C._dispatch_has_kernel_for_dispatch_key(name, _COMPOSITE)


def _decomposed_flops(call: OpCall) -> int:
    """FLOPs that FlopCounterMode counts for the decomposed op, on meta tensors like those of the call."""
    args, kwargs = pytree.tree_map(_on_meta, (call.args, dict(call.kwargs)))
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        call.op.decompose(*args, **kwargs)
    return int(counter.get_total_flops())


def _on_meta(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


CONVENTION = Convention(
    name="torch",
    sentence=(
        "As torch.utils.flop_counter: 2 FLOPs per MAC of contractions with a registered formula, 0 for other ops. "
        "Bytes are counted as in kit."
    ),
    unit="2 FLOPs per MAC",
    counts="contractions with a formula in the installed torch",
    backward=(
        "executed ops; 2.5 times forward for fused attention (scores are counted again); torch's weight gradient of grouped "
        "convolutions"
    ),
    use="comparison with FlopCounterMode and tools based on it",
    op_cost=op_cost,
)
