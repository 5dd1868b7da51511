"""Sums of gradients that meet at one tensor: done in place, as the engine does when no mode watches it.

With any dispatch mode active, autograd's engine takes every tensor for a subclass and adds out of place, which holds one
more gradient than a real step does. The mode can tell such an addition by its operand: a gradient that nobody but the
engine holds has, while the mode looks at it, exactly the use counts measured here.

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
    """Notes the use counts of the first operand of every addition."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.listening = False
        self.seen: list[UseCounts] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.listening and func is _ADD:
            self.seen.append(_use_counts(args[0]))
        return func(*args, **(kwargs or {}))


def _use_counts(tensor: Any) -> UseCounts:
    storage = tensor.untyped_storage()
    return tensor._use_count(), torch._C._storage_Use_Count(storage._cdata)


@cache
def exclusive_counts() -> UseCounts | None:
    """The use counts (tensor, storage) of a gradient that the engine alone holds, as a dispatch mode sees them.

    Measured on a graph of five nodes, since they may change between versions; None where the engine adds in place itself.
    """
    probe = _Probe()
    x = torch.empty(2, 2, device="meta", requires_grad=True)
    with torch.enable_grad(), probe:
        shared = x.exp()
        total = (shared * 2).sum() + (shared * 3).sum()
        probe.listening = True
        total.backward()
    return probe.seen[-1] if probe.seen else None


def adds_in_place(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether this call, made in backward, is the engine's addition of two gradients, the first its own to overwrite."""
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
