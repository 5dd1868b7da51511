"""Axes of training on several ranks: options of DistributedDataParallel."""

from __future__ import annotations

from typing import Final

from profiler_kit.configurations.axis import Axis
from profiler_kit.records.parallel import DEFAULT_BUCKET_MIB
from profiler_kit.records.target import TargetInfo

MAX_BUCKET_MB: Final = 100_000


def _size(value: str) -> str:
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= MAX_BUCKET_MB:
        raise ValueError(f"{value!r} is not a whole number of MiB from 1 to {MAX_BUCKET_MB}")
    return str(int(value))


def _skip_reason(value: str, device: str, info: TargetInfo | None) -> str | None:
    if info is not None and (info.parallel is None or info.parallel.strategy != "ddp"):
        return "it is an option of DistributedDataParallel (--parallel ddp)"
    return None


_DEVICES: Final = frozenset({"cuda", "cpu"})

AXES: Final = (
    Axis(
        name="bucket_mb",
        values="N",
        bare="",
        fresh=True,
        doc=f"buckets of N MiB in DistributedDataParallel ({DEFAULT_BUCKET_MIB} by default): larger ones send fewer messages, "
        "smaller ones start earlier; needs --parallel ddp",
        devices=_DEVICES,
        parse_value=_size,
        skip_reason=_skip_reason,
        replicas=lambda value: {"bucket_cap_mb": int(value)},
    ),
    Axis(
        name="find_unused",
        fresh=True,
        doc="DistributedDataParallel(find_unused_parameters=True), for models that leave out parameters in some steps; needs "
        "--parallel ddp",
        devices=_DEVICES,
        skip_reason=_skip_reason,
        replicas=lambda _: {"find_unused_parameters": True},
    ),
)
