"""The memory layout of tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from profiler_kit.configurations.axis import EVERYWHERE, Axis
from profiler_kit.records.target import TargetInfo, TargetSpec


def _channels_last(value: str, spec: TargetSpec) -> TargetSpec:
    return replace(spec, channels_last=True)


def _pointless(value: str, device: str, info: TargetInfo | None) -> str | None:
    if info is None:
        return None
    if info.channels_last:
        return "the target is in channels_last already"
    if not any(len(given.shape) in (4, 5) for given in info.inputs):
        return "no input has four or five dimensions"
    return None


AXES: Final = (
    Axis(
        name="channels_last",
        doc="model and inputs in NHWC memory layout",
        devices=EVERYWHERE,
        pointless=_pointless,
        spec=_channels_last,
    ),
)
