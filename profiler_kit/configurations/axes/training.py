"""Axes of the training step: activation checkpointing, fused optimizer, a loss that is not read."""

from __future__ import annotations

from typing import Final

from profiler_kit.configurations.axis import CUDA, EVERYWHERE, SAME_PRECISION, SAME_RESULTS, Axis, Change, StepControls
from profiler_kit.records.target import TargetInfo


def _module_path(value: str) -> str:
    if any(character.isspace() or character in ",+=" for character in value):
        raise ValueError(f"{value!r} is not a module path")
    return value


def _checkpoint_skip_reason(value: str, device: str, info: TargetInfo | None) -> str | None:
    return "inference saves nothing for backward" if info is not None and info.mode == "infer" else None


def _training_skip_reason(value: str, device: str, info: TargetInfo | None) -> str | None:
    return "inference has neither a loss nor an optimizer" if info is not None and info.mode == "infer" else None


def _no_item(value: str, runner: StepControls) -> None:
    runner.reads_loss = False


AXES: Final = (
    Axis(
        name="checkpoint",
        change=Change(
            line="x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)",
            memory="smaller activations",
            numerics=SAME_RESULTS,
        ),
        values="PATH",
        bare="",
        several=True,
        doc="activation checkpointing: the module at PATH saves only its inputs, and backward repeats its forward",
        devices=EVERYWHERE,
        parse_value=_module_path,
        skip_reason=_checkpoint_skip_reason,
        runner=lambda value, runner: runner.checkpoint(value.split(",")),
    ),
    Axis(
        name="fused_optimizer",
        change=Change(
            line="optimizer = torch.optim.{optimizer}(model.parameters(), ..., fused=True)", numerics=SAME_PRECISION
        ),
        doc="the optimizer with fused=True, otherwise unchanged",
        devices=EVERYWHERE,
        skip_reason=_training_skip_reason,
        runner=lambda value, runner: runner.fuse_optimizer(),
    ),
    Axis(
        name="no_item",
        change=Change(line="total_loss += loss.detach()", numerics=SAME_RESULTS),
        doc="steps do not read the loss, so the host does not wait for the device",
        devices=CUDA,
        skip_reason=_training_skip_reason,
        runner=_no_item,
    ),
)
