"""Losses: the elements' losses before they are reduced."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.scratch import NOTHING, LibraryConfig, OpCall, ScratchBytes, exactly, rule

_SOURCE: Final = "seen on an H100, torch 2.11"
_UNREDUCED: Final = 0


@rule("aten.mse_loss", "aten.smooth_l1_loss", "aten.huber_loss")
def elements(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """The elements' losses."""
    if _reduction(call, 2) == _UNREDUCED:
        return NOTHING
    return exactly(call.args[0].nbytes, _SOURCE)


@rule("aten.binary_cross_entropy_with_logits")
def logits(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """The elements' losses, and one of their terms."""
    copies = 1 if _reduction(call, 4) == _UNREDUCED else 2
    return exactly(copies * call.args[0].nbytes, _SOURCE)


@rule("aten.binary_cross_entropy")
def probabilities(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """The elements' losses."""
    return NOTHING if _reduction(call, 3) == _UNREDUCED else exactly(call.args[0].nbytes, _SOURCE)


def _reduction(call: OpCall, at: int) -> int:
    return int(call.args[at]) if len(call.args) > at else int(call.kwargs.get("reduction", 1))
