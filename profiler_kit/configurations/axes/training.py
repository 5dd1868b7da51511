"""What a training loop may do otherwise: a fused optimizer, a loss that nobody reads."""

from __future__ import annotations

from typing import Final

from profiler_kit.configurations.axis import EVERYWHERE, Axis, StepControls
from profiler_kit.records.target import TargetInfo


def _of_training(value: str, device: str, info: TargetInfo | None) -> str | None:
    return "inference has neither a loss nor an optimizer" if info is not None and info.mode == "infer" else None


def _fused(value: str, runner: StepControls) -> None:
    runner.fuse_optimizer()


def _no_item(value: str, runner: StepControls) -> None:
    runner.reads_loss = False


AXES: Final = (
    Axis(
        name="fused_optimizer",
        doc="the optimizer with fused=True, else as it is",
        devices=EVERYWHERE,
        pointless=_of_training,
        runner=_fused,
    ),
    Axis(
        name="no_item",
        doc="the loss is not read in each step, so that the host need not wait for the device",
        devices=frozenset({"cuda"}),
        pointless=_of_training,
        runner=_no_item,
    ),
)
