"""Axes that limit the choice of algorithms: number of timed algorithms, memory limit, deterministic algorithms."""

from __future__ import annotations

import os
from typing import Final

from profiler_kit import units
from profiler_kit.configurations.axis import CUDA, EVERYWHERE, SAME_PRECISION, Axis, Change, StepControls
from profiler_kit.errors import UsageError

_MAX_ALGORITHMS: Final = 10**6
_SIZES: Final = {
    "TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "TB": 10**12, "GB": 10**9, "MB": 10**6, "KB": 10**3, "B": 1,
}  # fmt: skip


def exact_size_text(size_bytes: int) -> str:
    """`size_bytes` exactly, in the unit that gives the smallest number: ``4GiB``, ``1536MiB``, ``500MB``."""
    fitting = [(size_bytes // unit, name) for name, unit in _SIZES.items() if size_bytes % unit == 0]
    count, name = min(fitting, key=lambda pair: pair[0])
    return f"{count}{name}"


def _read_size(value: str) -> str:
    size_bytes = units.parse_bytes(value)
    if size_bytes < 1:
        raise ValueError(f"{value!r} must be at least 1 byte")
    return exact_size_text(size_bytes)


def _memory_limit(value: str, runner: StepControls) -> None:
    import torch

    device = runner.device
    if device.type != "cuda":
        raise UsageError(
            f"memory_limit={value}: only a CUDA device's allocator has a limit", hint="leave memory_limit out"
        )
    limit_bytes = units.parse_bytes(value)
    total_bytes = torch.cuda.get_device_properties(device).total_memory
    if limit_bytes >= total_bytes:
        raise UsageError(
            f"memory_limit={value}: the device has {units.bytes_text(total_bytes)}", hint="choose a lower limit"
        )
    torch.cuda.empty_cache()  # blocks cached during loading count against the limit
    # by index: the index of a device without a number is None, which torch takes as the current device
    torch.cuda.set_per_process_memory_fraction(limit_bytes / total_bytes, device.index)


def _read_limit(value: str) -> str:
    if not (value.isdecimal() and value.isascii()) or int(value) > _MAX_ALGORITHMS:
        raise ValueError(f"{value!r} is not a number of algorithms (0: all)")
    return str(int(value))


def _benchmark_limit(value: str, device: str) -> None:
    import torch

    torch.backends.cudnn.benchmark_limit = int(value)


def _deterministic_algorithms(value: str, device: str) -> None:
    import torch

    # cuBLAS reads it when it creates a handle: with the default workspaces, results may differ between streams
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)


AXES: Final = (
    Axis(
        name="benchmark_limit",
        change=Change(line="torch.backends.cudnn.benchmark_limit = {}", numerics=SAME_PRECISION),
        values="N",
        bare="",
        flag="benchmark",
        doc="benchmark times at most N algorithms per call (torch's default: 10; 0: all)",
        devices=CUDA,
        parse_value=_read_limit,
        process=_benchmark_limit,
    ),
    Axis(
        name="deterministic_algorithms",
        change=Change(line="torch.use_deterministic_algorithms(True)", numerics="bitwise reproducible"),
        fresh=True,
        doc="torch.use_deterministic_algorithms: every op is bitwise reproducible, or fails",
        devices=EVERYWHERE,
        process=_deterministic_algorithms,
    ),
    Axis(
        name="memory_limit",
        values="SIZE",
        bare="",
        fresh=True,
        doc="limit torch's CUDA allocator to SIZE (4GiB): algorithms with larger workspaces are not chosen",
        devices=CUDA,
        parse_value=_read_size,
        runner=_memory_limit,
    ),
)
