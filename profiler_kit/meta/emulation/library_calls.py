"""Receivers of library calls inside emulated functions, and the facts of tensors."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import torch

from profiler_kit.devices.device import Figure
from profiler_kit.records.calls import OpCall, TensorFacts


class Libraries(Protocol):
    """A receiver of library calls inside replaced functions."""

    def use_workspace(self, call: OpCall) -> None:
        """A library runs `call` and allocates its temporary workspace."""

    def use_handle(self, handle: str, figure: Figure, op: str) -> None:
        """`op` uses a library handle, which allocates `figure` bytes at its first use and never releases them."""


def facts_of(value: Any) -> Any:
    """`value` with `TensorFacts` in place of every tensor, and tuples in place of lists."""
    if isinstance(value, torch.Tensor):
        dtype = value.dtype
        if value.is_nested and value.layout is torch.strided:  # has no shape
            return TensorFacts((value.numel(),), (1,), _dtype_name(dtype), dtype.itemsize)
        return TensorFacts(tuple(value.shape), value.stride(), _dtype_name(dtype), dtype.itemsize)
    if isinstance(value, (list, tuple)):
        return tuple([facts_of(item) for item in value])
    return value


@cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).rpartition(".")[2]
