"""Axes of the target's data loader: worker processes and pinned memory."""

from __future__ import annotations

import os
from typing import Final

from profiler_kit.configurations.axis import CUDA, EVERYWHERE, Axis, StepControls
from profiler_kit.records.target import TargetInfo

_MAX_WORKERS: Final = 1024
_NO_LOADER: Final = "the target has no data loader"


def _read(value: str) -> str:
    if not (value.isdecimal() and value.isascii()) or int(value) > _MAX_WORKERS:
        raise ValueError(f"{value!r} is not a number of worker processes (0: none)")
    return str(int(value))


def _workers_skip_reason(value: str, device: str, info: TargetInfo | None) -> str | None:
    if info is not None and not info.has_loader:
        return _NO_LOADER
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"there are only {cores} cores" if cores is not None and int(value) > cores else None


def _pin_skip_reason(value: str, device: str, info: TargetInfo | None) -> str | None:
    return _NO_LOADER if info is not None and not info.has_loader else None


def _workers(value: str, runner: StepControls) -> None:
    runner.configure_loader(workers=int(value))


def _pin(value: str, runner: StepControls) -> None:
    runner.configure_loader(pinned=True)


AXES: Final = (
    Axis(
        name="loader_workers",
        values="N",
        bare="",
        fresh=True,
        doc="the target's DataLoader with N worker processes that persist between epochs (0: none)",
        devices=EVERYWHERE,
        parse_value=_read,
        skip_reason=_workers_skip_reason,
        runner=_workers,
    ),
    Axis(
        name="pin_memory",
        fresh=True,
        doc="the target's DataLoader with pin_memory=True, so that batches are copied to the device asynchronously",
        devices=CUDA,
        skip_reason=_pin_skip_reason,
        runner=_pin,
    ),
)
