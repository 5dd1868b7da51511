"""Bytes that libraries and kernels take behind an op and give back before it returns: a drop-in folder of rules.

A rule is a function from what an op was called with to an interval of bytes, under the op's name; nothing here needs
torch or tensors, so that a rule can be tried on any shape::

    @rule("aten.convolution")
    def convolution(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes: ...

What a library keeps for good (a cuBLAS handle's workspace) is no scratch: see `profiler_kit.memory.tracker`.

Pseudo ops, called by the emulation of recurrent layers with keywords alone, as ``call.kwargs``: ``aten._cudnn_rnn`` and
``aten._cudnn_rnn_backward`` with ``kind`` (``lstm``, ``gru``, ``rnn_tanh``, ``rnn_relu``), ``rows`` (time steps times
batch, or packed rows), ``batch``, ``input_size``, ``hidden``, ``depth``, ``directions``, ``element_bytes``, ``dropout``,
``packed``, ``train``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, TypeAlias

from profiler_kit import _family
from profiler_kit.devices.device import Device


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What a rule may know of a tensor. `dtype` is torch's name without its package (``float32``)."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    element_bytes: int

    @property
    def numel(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return self.numel * self.element_bytes


@dataclass(frozen=True, slots=True)
class OpCall:
    """An op's call: its name (``aten.convolution``), and its arguments and results with facts in place of tensors.

    Lists of arguments are tuples here. `in_backward`: whether autograd's backward calls it.
    """

    op: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[Any, ...] = ()
    in_backward: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryConfig:
    """The settings that change which algorithms libraries take: torch's flags of the same names, at their defaults."""

    benchmark: bool = False
    deterministic: bool = False
    cudnn: bool = True
    conv_tf32: bool = True
    matmul_tf32: bool = False


@dataclass(frozen=True, slots=True)
class ScratchBytes:
    """Bytes taken while the op runs: at least, probably, at most; and where that is known from."""

    low: int
    likely: int
    high: int
    source: str = ""


Rule: TypeAlias = Callable[[OpCall, Device, LibraryConfig], ScratchBytes]

MEASURED_CAPABILITY: Final = 90
MARGIN: Final = 0.25  # of the largest scratch seen for such a shape
NOTHING: Final = ScratchBytes(0, 0, 0)

_RULES: Final[dict[str, Rule]] = {}


def exactly(nbytes: int, source: str) -> ScratchBytes:
    """Scratch that is known."""
    return ScratchBytes(nbytes, nbytes, nbytes, source)


def on_card(scratch: ScratchBytes, device: Device) -> ScratchBytes:
    """`scratch` with room for what was not among the shapes it was measured on, on Hopper; elsewhere from nothing to more.

    The room is `MARGIN` of the upper end, where there is an interval at all. Of 285 cases of networks that no rule was
    drawn from, four took more than the largest scratch that their shapes were seen to take, by up to a fifth of it.
    """
    known = scratch.low == scratch.high
    roomy = scratch if known else replace(scratch, high=round(scratch.high * (1 + MARGIN)))
    if device.architecture.capability == MEASURED_CAPABILITY or scratch.high == 0:
        return roomy
    return ScratchBytes(0, scratch.likely, scratch.high * 3 // 2, f"{scratch.source}; a guess for {device.label}")


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """A decorator: its function tells the scratch of `ops`."""

    def register(made: Rule) -> Rule:
        for op in ops:
            _RULES[op] = made
        return made

    return register


@cache
def ruled_ops() -> frozenset[str]:
    """The names of the ops that have a rule."""
    _family.members(sys.modules[__name__])
    return frozenset(_RULES)


def scratch_of(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """The scratch of `call` on `device`; none for an op without a rule, and on the CPU."""
    if not device.is_cuda or call.op not in ruled_ops():
        return NOTHING
    return _RULES[call.op](call, device, config)
