"""Activation checkpointing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from profiler_kit.configurations.axis import EVERYWHERE, Axis
from profiler_kit.records.target import TargetInfo

if TYPE_CHECKING:
    from profiler_kit.worker.steps import Runner


def _read(value: str) -> str:
    if any(character.isspace() or character in ",+=" for character in value):
        raise ValueError(f"{value!r} is no path of a module")
    return value


def _pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
    return "inference keeps nothing for backward" if info is not None and info.mode == "infer" else None


def _runner(value: str, runner: Runner) -> None:
    from profiler_kit.loading.checkpointing import checkpointed

    runner.lasting.enter_context(checkpointed(runner.target.model, value.split(",")))


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
