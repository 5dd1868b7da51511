"""Sums of several gradients of one tensor: added in place, as autograd does without a dispatch mode.

With a dispatch mode active, autograd treats every tensor as a subclass and adds out of place, so one more gradient is alive
than in a real step. The mode recognizes such an addition by the use counts of its operand: a gradient that only autograd
references has the counts measured here.

Source: torch/csrc/autograd/input_buffer.cpp, ``accumulate``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_ADD: Final = torch.ops.aten.add.Tensor
ADD_IN_PLACE: Final = torch.ops.aten.add_.Tensor

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


def adds_in_place(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether this call in backward is autograd's sum of two gradients, of which it can overwrite the first."""
    if func is not _ADD or kwargs or len(args) != 2 or torch.is_grad_enabled():
        return False
    into, other = args
    return (
        isinstance(into, Tensor)
        and isinstance(other, Tensor)
        and into.shape == other.shape
        and into.dtype == other.dtype
        and not into._is_view()
        and _use_counts(into) == exclusive_counts()
        and _is_dense(into)
    )


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
