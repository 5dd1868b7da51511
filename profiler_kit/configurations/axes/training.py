"""What a training loop may do otherwise: activation checkpointing, a fused optimizer, a loss that nobody reads."""

from __future__ import annotations

from typing import Final

from profiler_kit.configurations.axis import EVERYWHERE, Axis, StepControls
from profiler_kit.records.target import TargetInfo


def _module_path(value: str) -> str:
    if any(character.isspace() or character in ",+=" for character in value):
        raise ValueError(f"{value!r} is no path of a module")
    return value


def _keeps_nothing(value: str, device: str, info: TargetInfo | None) -> str | None:
    return "inference keeps nothing for backward" if info is not None and info.mode == "infer" else None


def _of_training(value: str, device: str, info: TargetInfo | None) -> str | None:
    return "inference has neither a loss nor an optimizer" if info is not None and info.mode == "infer" else None


def _no_item(value: str, runner: StepControls) -> None:
    runner.reads_loss = False


AXES: Final = (
    Axis(
        name="checkpoint",
        values="PATH",
        bare="",
        several=True,
        doc="the module at PATH keeps its inputs alone for backward, and runs its forward again there",
        devices=EVERYWHERE,
        read=_module_path,
        pointless=_keeps_nothing,
        runner=lambda value, runner: runner.checkpoint(value.split(",")),
    ),
    Axis(
        name="fused_optimizer",
        doc="the optimizer with fused=True, else as it is",
        devices=EVERYWHERE,
        pointless=_of_training,
        runner=lambda value, runner: runner.fuse_optimizer(),
    ),
    Axis(
        name="no_item",
        doc="the loss is not read in each step, so that the host need not wait for the device",
        devices=frozenset({"cuda"}),
        pointless=_of_training,
        runner=_no_item,
    ),
)
