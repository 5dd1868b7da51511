"""Measures the device's peaks: large matrix products in each arithmetic, and a copy on the device.

Runs in a separate process (see `ceiling_store`), because it sets switches and needs free memory.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import torch

from profiler_kit.records.jobs import CeilingsJob
from profiler_kit.records.machine import Ceilings, MathRate
from profiler_kit.statistics.intervals import median_interval
from profiler_kit.user_code.locations import one_line_message
from profiler_kit.worker import environment
from profiler_kit.worker.entry import serve
from profiler_kit.worker.steps import MIN_STEPS

VERSION: Final = 1  # of the method; raise it when new figures are not comparable with old ones
# Switches that override arithmetic and so change the peaks.
OVERRIDES: Final = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG")
REPEATS: Final = 10  # a matrix size must fit this often into its time share; a median of fewer repeats is unstable
MAX_REPEATS: Final = 200
WARMUP_SHARE: Final = 0.2  # clocks and caches settle in the first calls
# On an H100 more than 8192 rows are not faster; below 512 rows most threads are idle.
SMALLEST, LARGEST = 512, 8192
COPY_BYTES: Final = {"cpu": 128 * 2**20, "cuda": 2**30}  # much larger than any cache
MEMORY_SHARE: Final = 8  # use at most this fraction (1/8) of the free memory

_DTYPES: Final = {"fp32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def cache_key(device: str) -> tuple[str, ...]:
    """The cache key of the peaks of `device`: the device's name first, then its driver or threads, torch and the switches."""
    where = environment.describe(device)
    host = f"driver {driver_version()}" if device.startswith("cuda") else f"{where.threads} threads"
    switches = (f"{name}={os.environ[name]}" for name in OVERRIDES if name in os.environ)
    return (where.device_name, where.device, f"torch {where.torch}", f"method {VERSION}", host, *switches)


def supported_arithmetics(device: str) -> tuple[str, ...]:
    """The arithmetics that `device` has units for. Emulated ones are left out."""
    if not device.startswith("cuda"):
        return ("fp32", "bf16") if device == "cpu" else ("fp32", "f16")
    if torch.version.hip:
        return ("fp32", "f16", "bf16")
    return ("fp32", "tf32", "f16", "bf16") if environment.has_tf32(device) else ("fp32", "f16")


def measure(device: str, *, budget_s: float) -> Ceilings:
    """The peaks of `device`, measured in this process within about `budget_s`. A measurement that fails becomes a note."""
    start_ns = time.perf_counter_ns()
    place = torch.device(device)
    if place.type == "cuda" and place.index is not None:
        torch.cuda.set_device(place)  # events are recorded on the current device
    arithmetics = supported_arithmetics(device)
    share_ns = round(budget_s * 1e9 / (len(arithmetics) + 1))
    torch.manual_seed(0)
    rates, notes = [], []
    for math in arithmetics:
        try:
            rates.append(_rate(math, place, share_ns))
        except RuntimeError as error:  # for example out of memory, or no kernel for this type
            notes.append(f"{math} was not measured: {one_line_message(error)}")
    copy_bytes, bandwidth, spread = 0, None, None
    try:
        copy_bytes, times = _copy_times(place, share_ns)
        bandwidth, spread = 2 * copy_bytes / (statistics.median(times) * 1e-9), _spread(times)
    except RuntimeError as error:
        notes.append(f"the copy was not measured: {one_line_message(error)}")
    where = environment.describe(place)
    return Ceilings(
        device=where.device,
        device_name=where.device_name,
        torch=where.torch,
        driver=driver_version() if place.type == "cuda" else None,
        threads=where.threads if place.type == "cpu" else None,
        rates=tuple(rates),
        bandwidth_bytes_per_s=bandwidth,
        copy_bytes=copy_bytes,
        bandwidth_spread_percent=spread,
        duration_ns=time.perf_counter_ns() - start_ns,
        notes=tuple(notes),
    )


def driver_version() -> str | None:
    """The NVIDIA driver's version, from the kernel module; None where it cannot be read."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return None
    version = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", text)
    return version.group() if version else None


def _rate(math: str, place: torch.device, share_ns: int) -> MathRate:
    torch.backends.cuda.matmul.allow_tf32 = math == "tf32"
    start_ns = time.perf_counter_ns()
    size, max_size = SMALLEST, _largest(place, _DTYPES[math].itemsize)
    speeds: list[tuple[float, int]] = []
    # Double the size while repeats of the next size fit. The factor is the measured time, because small sizes have overhead.
    while True:
        call = _product(size, _DTYPES[math], place)
        call()
        once_ns = min(_times(call, place, until_ns=0, min_count=2))
        speeds.append((size**3 / once_ns, size))
        if 2 * size > max_size or 2 * once_ns * REPEATS > share_ns * (1 - WARMUP_SHARE):
            break
        size *= 2
    size = max(speeds)[1]
    call = _product(size, _DTYPES[math], place)
    end_ns = start_ns + share_ns
    _times(call, place, until_ns=time.perf_counter_ns() + round(share_ns * WARMUP_SHARE), min_count=1)
    times = _times(call, place, until_ns=end_ns, min_count=MIN_STEPS)
    return MathRate(
        math=math,
        flops_per_s=2 * size**3 / (statistics.median(times) * 1e-9),
        size=size,
        repeats=len(times),
        spread_percent=_spread(times),
    )


def _product(size: int, dtype: torch.dtype, place: torch.device) -> Callable[[], object]:
    # Random numbers, not zeros: with zeros a device draws less power and clocks higher than with real data.
    a, b = (torch.randn(size, size, device=place).to(dtype) for _ in range(2))
    out = torch.empty(size, size, device=place, dtype=dtype)
    return lambda: torch.mm(a, b, out=out)


def _copy_times(place: torch.device, share_ns: int) -> tuple[int, list[int]]:
    max_bytes = COPY_BYTES.get(place.type, COPY_BYTES["cpu"])
    free = torch.cuda.mem_get_info(place)[0] if place.type == "cuda" else None
    size = min(max_bytes, free // MEMORY_SHARE) if free is not None else max_bytes
    source = torch.ones(size // 4, device=place)
    target = torch.zeros_like(source)

    copy = partial(target.copy_, source)
    _times(copy, place, until_ns=time.perf_counter_ns() + round(share_ns * WARMUP_SHARE), min_count=1)
    until_ns = time.perf_counter_ns() + round(share_ns * (1 - WARMUP_SHARE))
    return source.numel() * source.element_size(), _times(copy, place, until_ns=until_ns, min_count=MIN_STEPS)


def _times(call: Callable[[], object], place: torch.device, *, until_ns: int, min_count: int) -> list[int]:
    """Durations of at least `min_count` calls, continued until `until_ns`; by CUDA events on CUDA."""
    times: list[int] = []
    while len(times) < min_count or (time.perf_counter_ns() < until_ns and len(times) < MAX_REPEATS):
        if place.type == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(max(1, round(start.elapsed_time(end) * 1e6)))
        else:
            start_ns = time.perf_counter_ns()
            call()
            if place.type == "mps":
                torch.mps.synchronize()
            times.append(max(1, time.perf_counter_ns() - start_ns))
    return times


def _largest(place: torch.device, itemsize: int) -> int:
    """The largest number of rows for which three matrices (and one in float32 for random numbers) fit into the memory share."""
    if place.type != "cuda":
        return LARGEST
    available = torch.cuda.mem_get_info(place)[0] // MEMORY_SHARE
    size = LARGEST
    while size > SMALLEST and size * size * (3 * itemsize + 4) > available:
        size //= 2
    return size


def _spread(times: list[int]) -> float:
    interval = median_interval(times)
    return 50.0 * (interval.high - interval.low) / interval.median


if __name__ == "__main__":
    serve(CeilingsJob, lambda job, on_progress: measure(job.device, budget_s=job.budget_s))
