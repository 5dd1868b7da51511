"""Calls of ops without tensors: names, arguments and results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from profiler_kit.records.counts import Phase


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


@dataclass(frozen=True, slots=True)
class StepCall:
    """A call of a step, the phase in which it ran, and the module that owns it. `is_view`: it only makes a view of a tensor."""

    call: OpCall
    phase: Phase
    path: str
    is_view: bool = False
