"""Calls of libraries inside emulated functions: their names, arguments and results, without tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import torch

from profiler_kit.devices.device import Figure


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """Metadata of a tensor for rules. `dtype` is torch's name without the package (``float32``)."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    element_bytes: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel * self.element_bytes


@dataclass(frozen=True, slots=True)
class OpCall:
    """A call of an op: its name (``aten.convolution``), arguments and results, with `TensorFacts` instead of tensors.

    Lists are tuples. `in_backward`: whether the call runs in backward.
    """

    op: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[Any, ...] = ()
    in_backward: bool = False


class Libraries(Protocol):
    """A receiver of library calls inside replaced functions."""

    def use_workspace(self, call: OpCall) -> None:
        """A library runs `call` and allocates its temporary workspace."""

    def use_handle(self, handle: str, figure: Figure, op: str) -> None:
        """`op` uses a library handle, which allocates `figure` bytes at its first use and never releases them."""


class NoLibraries:
    """A receiver that ignores library calls."""

    def use_workspace(self, call: OpCall) -> None:
        """Ignore `call`."""

    def use_handle(self, handle: str, figure: Figure, op: str) -> None:
        """Ignore the handle."""


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
