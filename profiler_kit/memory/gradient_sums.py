"""Ops of backward that run in place without a dispatch mode: sums of gradients, and ops inside formulas of gradients.

With a dispatch mode active, autograd treats every tensor as a subclass and writes no tensor in place, so one more tensor is
alive than in a real step. The mode recognizes such an op by the use counts of its operand: a gradient that only autograd
references has the counts measured here.

Source: torch/csrc/autograd/input_buffer.cpp, ``accumulate``; torch/csrc/autograd/FunctionsManual.cpp and
ATen/native/Loss.cpp, the uses of ``areAnyTensorSubclassLike``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_ATEN: Final = torch.ops.aten
_ADD: Final = _ATEN.add.Tensor
# By id, since torch hashes ops in Python. Formulas write into zeros that they have just made.
_IN_PLACE: Final[dict[int, Any]] = {
    id(op): variant
    for op, variant in (
        (_ATEN.add.Tensor, _ATEN.add_.Tensor),
        (_ATEN.sub.Tensor, _ATEN.sub_.Tensor),
        (_ATEN.mul.Tensor, _ATEN.mul_.Tensor),
        (_ATEN.scatter_add.default, _ATEN.scatter_add_.default),
        (_ATEN.scatter.src, _ATEN.scatter_.src),
        (_ATEN.index_add.default, _ATEN.index_add_.default),
        (_ATEN.index_put.default, _ATEN.index_put_.default),
        (_ATEN.put.default, _ATEN.put_.default),
    )
}
_ELEMENTWISE: Final = frozenset(("aten::sub", "aten::mul"))
_ELEMENTWISE_NODES: Final = frozenset(("BinaryCrossEntropyWithLogitsBackward0",))

UseCounts = tuple[int, int]


class _Probe(TorchDispatchMode):
    """Record the use counts of the first operand of every addition."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_recording = False
        self.use_counts: list[UseCounts] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.is_recording and func is _ADD:
            self.use_counts.append(_use_counts(args[0]))
        return func(*args, **(kwargs or {}))


def _use_counts(tensor: Any) -> UseCounts:
    storage = tensor.untyped_storage()
    return tensor._use_count(), torch._C._storage_Use_Count(storage._cdata)


@cache
def exclusive_counts() -> UseCounts | None:
    """The use counts (tensor, storage), inside a dispatch mode, of a gradient that only autograd references.

    Measured on a graph of five nodes, since they can change between torch versions. None if autograd adds in place itself.
    """
    probe = _Probe()
    x = torch.empty(2, 2, device="meta", requires_grad=True)
    with torch.enable_grad(), probe:
        shared = x.exp()
        total = (shared * 2).sum() + (shared * 3).sum()
        probe.is_recording = True
        total.backward()
    return probe.use_counts[-1] if probe.use_counts else None


def in_place_variant(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The op that autograd runs in place of this call in backward without a dispatch mode; None if that is the call itself."""
    variant = _IN_PLACE.get(id(func))
    if variant is None or torch.is_grad_enabled() or not isinstance(args[0], Tensor) or args[0]._is_view():
        return None
    if func is _ADD:
        return variant if not kwargs and len(args) == 2 and _can_overwrite(*args) else None
    node: Any = torch._C._current_autograd_node()
    if node is None or isinstance(node, torch.autograd.function.BackwardCFunction):
        return None  # the user's own formula
    if variant._schema.name.rstrip("_") in _ELEMENTWISE:
        return variant if node.name() in _ELEMENTWISE_NODES and _can_overwrite(*args[:2]) else None
    return variant if _is_exclusive_storage(args[0]) else None


def _can_overwrite(into: Tensor, other: Any) -> bool:
    """Whether `into` can hold the result of an elementwise op with `other`, and only autograd references it."""
    return (
        isinstance(other, Tensor)
        and (into.shape == other.shape or torch.broadcast_shapes(into.shape, other.shape) == into.shape)
        and into.dtype == other.dtype
        and _use_counts(into) == exclusive_counts()
        and _is_dense(into)
    )


def _is_exclusive_storage(tensor: Tensor) -> bool:
    """Whether only the running formula references the storage of `tensor`. The tensor can have several references."""
    counts = exclusive_counts()
    return counts is not None and _use_counts(tensor)[1] == counts[1]


def _is_dense(tensor: Tensor) -> bool:
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True
