"""The convention of torch's own counter: what the formulas registered with `FlopCounterMode` say of each op.

They are the installed torch's, its gaps and errors included: they change with torch, and with what a user registers by
``torch.utils.flop_counter.register_flop_formula``.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from profiler_kit.counting.conventions import Convention, OpCall, work
from profiler_kit.errors import KitError
from profiler_kit.records.counts import Cost

_COMPOSITE: Final = "CompositeImplicitAutograd"


def restate(call: OpCall) -> Cost | None:
    """The registered formula's FLOPs, half as many MACs; nothing without one. An op nobody knows stays unknown.

    Raises: KitError where the formula cannot take the call, as FlopCounterMode would too.
    """
    packet = call.op.overloadpacket if isinstance(call.op, OpOverload) else call.op
    found = flop_registry.get(packet)
    if found is not None:
        try:
            flops = int(found(*call.args, **call.kwargs, out_val=call.out))
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise KitError(
                f"torch's own formula of {packet} cannot take this call: {type(error).__name__}: {error}",
                hint="FlopCounterMode would end so too; count with --convention kit",
            ) from error
        return work(call.own, macs=flops // 2, flops=flops)
    if isinstance(call.op, OpOverload) and is_composite(call.op):
        flops = _of_its_parts(call)
        return work(call.own, macs=flops // 2, flops=flops)
    return None if call.own is None else work(call.own, macs=0)


def is_composite(op: OpOverload) -> bool:
    """Whether the op is made of others, which FlopCounterMode takes apart; such come whole in inference mode only."""
    overload = op._schema.overload_name
    name = f"{op._schema.name}.{overload}" if overload else op._schema.name
    # what is no op of the dispatcher, such as prim::device, which fake tensors are asked for, has no kernels to look up
    return torch._C._dispatch_has_kernel(name) and torch._C._dispatch_has_kernel_for_dispatch_key(name, _COMPOSITE)


def _of_its_parts(call: OpCall) -> int:
    """What FlopCounterMode makes of the op's parts, on meta tensors like the call's."""
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
        "As torch.utils.flop_counter: 2 FLOPs per MAC of the contractions it has formulas for, and nothing else; "
        "bytes are the kit's."
    ),
    unit="2 FLOPs per MAC",
    counts="the contractions that the installed torch has formulas for",
    backward=(
        "executed and counted; fused attention 2.5 times its forward (the scores once more), and weight gradients of grouped "
        "convolutions as torch has them"
    ),
    use="comparing with FlopCounterMode, and with tools built on it",
    restate=restate,
)
