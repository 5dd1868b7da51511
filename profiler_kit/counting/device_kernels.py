"""The kernels of a device in a count: library calls that the emulation makes, and the kernels that run attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from profiler_kit.counting.arithmetic import Specs
from profiler_kit.counting.operands import OpFacts, plan_op, traffic
from profiler_kit.counting.tracer import Tracer
from profiler_kit.devices.device import Device, Figure
from profiler_kit.records.calls import OpCall, TensorFacts
from profiler_kit.records.counts import AttentionUse, OpRecord, TensorSpec

_HEAD_DIMS: Final = 4  # batch, heads, rows, head size
_PREFIX: Final = "aten._scaled_dot_product_"
_KERNELS: Final = {
    "flash_attention": "flash", "flash_attention_for_cpu": "flash", "efficient_attention": "memory-efficient",
    "cudnn_attention": "cuDNN", "fused_attention_overrideable": "the backend's", "attention_math": "math",
}  # fmt: skip


class LibraryOps:
    """Count the library calls inside emulated functions, such as recurrent layers. Their tensors are allocated by other ops."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def use_workspace(self, call: OpCall) -> None:
        """Count `call` in the current module and phase. A ``head_size`` without padding makes the padding free."""
        op = getattr(torch.ops.aten, call.op.removeprefix("aten.")).default
        args, outputs = _as_specs(call.args), _as_specs(call.outputs)
        plan = plan_op(op)
        assert plan.formula is not None  # every op that the emulation calls has one
        inputs, written = tuple(_specs_in(args)), tuple(_specs_in(outputs))
        head = call.kwargs.get("head_size")
        nominal = args if head is None else tuple(_with_head_size(value, head) for value in args)
        cost = plan.formula.cost(nominal, {}, plan.parameters, outputs) + traffic(inputs, written)
        self._tracer.note_call(OpFacts(op=plan.name, inputs=inputs, outputs=written, cost=cost), op, args, outputs)

    def use_handle(self, handle: str, figure: Figure, op: str) -> None:
        """Ignore the handle: its workspace moves no bytes."""


def attention_uses(ops: Iterable[OpRecord], decomposed: Mapping[torch.dtype, int]) -> tuple[AttentionUse, ...]:
    """The kernels of attention in forward, by dtype. `decomposed`: calls without a fused kernel, by dtype."""
    calls: Counter[tuple[str, str]] = Counter()
    for op in ops:
        kernel = _KERNELS.get(op.op.removeprefix(_PREFIX)) if op.op.startswith(_PREFIX) else None
        if kernel is not None and op.phase in ("forward", "loss"):
            calls[kernel, op.inputs[0].dtype] += op.calls
    for dtype, count in decomposed.items():
        calls["math", str(dtype).removeprefix("torch.")] += count
    return tuple(AttentionUse(kernel=kernel, dtype=dtype, calls=count) for (kernel, dtype), count in calls.items())


def attention_note(uses: Sequence[AttentionUse], device: Device) -> str:
    """A sentence that names the kernels of attention."""
    kernels = " and ".join(f"the {use.kernel} kernel ({use.dtype})" for use in uses)
    return f"attention is counted as on {device.label}: {kernels}"


def _with_head_size(value: Any, head: int) -> Any:
    """`value` with `head` as the last dimension, if it is a spec of queries, keys, values or the output, by heads."""
    if not isinstance(value, TensorSpec) or len(value.shape) != _HEAD_DIMS:
        return value
    return replace(value, shape=(*value.shape[:-1], head))


def _as_specs(value: Any) -> Any:
    if isinstance(value, TensorFacts):
        return TensorSpec(shape=value.shape, dtype=value.dtype, nbytes=value.nbytes)
    if isinstance(value, tuple):
        return tuple(_as_specs(item) for item in value)
    return value


def _specs_in(value: Specs | Any) -> Iterable[TensorSpec]:
    if isinstance(value, TensorSpec):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _specs_in(item)
