"""Activation checkpointing."""

from __future__ import annotations

from typing import Final

from profiler_kit.configurations.axis import EVERYWHERE, Axis, StepControls
from profiler_kit.records.target import TargetInfo


def _read(value: str) -> str:
    if any(character.isspace() or character in ",+=" for character in value):
        raise ValueError(f"{value!r} is no path of a module")
    return value


def _pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
    return "inference keeps nothing for backward" if info is not None and info.mode == "infer" else None


def _runner(value: str, runner: StepControls) -> None:
    runner.checkpoint(value.split(","))


AXES: Final = (
    Axis(
        name="checkpoint",
        values="PATH",
        bare="",
        several=True,
        doc="the module at PATH keeps its inputs alone for backward, and runs its forward again there",
        devices=EVERYWHERE,
        read=_read,
        pointless=_pointless,
        runner=_runner,
    ),
)
