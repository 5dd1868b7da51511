"""Rules for temporary workspace: bytes that a library or kernel allocates for an op and frees before the op returns.

A drop-in folder. A rule is registered under an op's name. It maps the arguments of a call to an interval of bytes, without
torch, so it can be evaluated for any shape::

    @rule("aten.convolution")
    def convolution(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes: ...

Persistent workspace of library handles (cuBLAS) has no rule here: see `profiler_kit.memory.tracker`.

The emulation of recurrent layers calls two pseudo ops, ``aten._cudnn_rnn`` and ``aten._cudnn_rnn_backward``, with these
keyword arguments in ``call.kwargs``: ``kind`` (``lstm``, ``gru``, ``rnn_tanh``, ``rnn_relu``), ``rows`` (time steps times
batch, or packed rows), ``batch``, ``input_size``, ``hidden``, ``depth``, ``directions``, ``element_bytes``, ``dropout``,
``packed``, ``train``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, TypeAlias

from profiler_kit import _family
from profiler_kit.devices.device import Device
from profiler_kit.records.calls import OpCall


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryConfig:
    """Settings that change a library's choice of algorithms: torch's flags of the same names, with torch's defaults."""

    benchmark: bool = False
    deterministic: bool = False
    cudnn: bool = True
    conv_tf32: bool = True
    matmul_tf32: bool = False


@dataclass(frozen=True, slots=True)
class WorkspaceBytes:
    """Bytes allocated while an op runs: minimum, likely and maximum. `source`: the origin of the figures."""

    low: int
    likely: int
    high: int
    source: str = ""


Rule: TypeAlias = Callable[[OpCall, Device, LibraryConfig], WorkspaceBytes]

MEASURED_CAPABILITY: Final = 90
MARGIN: Final = 0.25  # share of the largest measured workspace
NOTHING: Final = WorkspaceBytes(0, 0, 0)

_RULES: Final[dict[str, Rule]] = {}


def exactly(nbytes: int, source: str) -> WorkspaceBytes:
    """Workspace with a known size."""
    return WorkspaceBytes(nbytes, nbytes, nbytes, source)


def on_card(workspace: WorkspaceBytes, device: Device) -> WorkspaceBytes:
    """`workspace` with a wider interval: `MARGIN` on the measured architecture (Hopper), from 0 to 1.5 times on others.

    An exact size stays exact on Hopper. The margin covers shapes that were not measured: 4 of 285 cases of other networks
    exceeded the largest measured workspace, by up to a fifth.
    """
    is_exact = workspace.low == workspace.high
    with_margin = workspace if is_exact else replace(workspace, high=round(workspace.high * (1 + MARGIN)))
    if device.architecture.capability == MEASURED_CAPABILITY or workspace.high == 0:
        return with_margin
    return WorkspaceBytes(
        0, workspace.likely, workspace.high * 3 // 2, f"{workspace.source}; not measured on {device.label}"
    )


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """A decorator that registers its function as the rule of `ops`."""

    def register(function: Rule) -> Rule:
        for op in ops:
            _RULES[op] = function
        return function

    return register


@cache
def ruled_ops() -> frozenset[str]:
    """The names of the ops with a rule."""
    _family.members(sys.modules[__name__])
    return frozenset(_RULES)


def workspace_of(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """The temporary workspace of `call` on `device`; zero without a rule and on the CPU."""
    if not device.is_cuda or call.op not in ruled_ops():
        return NOTHING
    return _RULES[call.op](call, device, config)
