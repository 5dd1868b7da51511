"""The process and device of a run: sets configuration flags, creates handles, and describes the environment."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final

import torch

from profiler_kit.errors import UsageError
from profiler_kit.loading.tensor_kinds import free_bytes
from profiler_kit.records.configs import Backend, Environment, NamedValue, RunConfig
from profiler_kit.records.machine import Device
from profiler_kit.user_code.process_settings import BACKEND_FLAGS, settings_restored

# Variables that affect the choice of algorithms, the arithmetic, or memory allocation.
VARIABLES: Final = (
    "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDNN_CONV_WSCAP_DBG", "CUDNN_ERRATA_JSON_FILE",
    "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", "TORCH_CUDNN_V8_API_DISABLED", "TORCH_CUDNN_USE_HEURISTIC_MODE_B",
    "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_MIOPEN_SUGGEST_NHWC", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
)  # fmt: skip


def pick_device(name: str) -> str:
    """The device `name`; ``auto`` is CUDA if available, otherwise MPS, otherwise the CPU.

    Raises UsageError for an unknown or unavailable device.
    """
    if name != "auto":
        _check_device(name)
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def all_devices() -> tuple[str, ...]:
    """Every CUDA device by name; without one, the device that ``auto`` picks."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return tuple(f"cuda:{index}" for index in range(count)) or (pick_device("auto"),)


def _check_device(name: str) -> None:
    where = f"--device {name}"
    match = re.fullmatch(r"(cpu|cuda|mps)(?::([0-9]+))?", name)
    if match is None:
        raise UsageError("no such device", where=where, hint="choose from auto, cpu, cuda, cuda:1 … and mps")
    kind, index = match.group(1), int(match.group(2) or 0)
    available = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[kind]
    if available == 0:
        reason = (
            "this torch is built without CUDA"
            if kind == "cuda" and not torch.cuda._is_compiled()
            else "torch does not detect one"
        )
        raise UsageError(f"no {kind} device here: {reason}", where=where, hint="use --device auto or --device cpu")
    if index >= available:
        last = f"{kind}:{available - 1}" if available > 1 else kind
        raise UsageError(f"no such device: the last one is {last}", where=where, hint=f"use --device {last}")


def backend(device: str) -> Backend:
    """The library that runs convolutions on `device`; ``native`` for torch's own kernels."""
    if device.startswith("cuda"):
        if not torch.backends.cudnn.is_available():  # built without cuDNN; on ROCm this flag means MIOpen
            return "native"
        return "miopen" if torch.version.hip else "cudnn"
    return "mps" if device.startswith("mps") else "cpu"


def has_tf32(device: str) -> bool:
    """Whether `device` supports TF32 (compute capability 8.0 and later)."""
    return device.startswith("cuda") and torch.version.hip is None and torch.cuda.get_device_capability(device)[0] >= 8


@contextlib.contextmanager
def threads_limited(count: int | None) -> Iterator[None]:
    """Within the block, PyTorch uses at most `count` threads, unless the block changes their number. None does not limit it."""
    before = torch.get_num_threads()
    limited = before if count is None else min(before, count)
    if limited != before:
        torch.set_num_threads(limited)
    yield
    if limited != before and torch.get_num_threads() == limited:  # otherwise the model's file has set it
        torch.set_num_threads(before)


def apply_flags(config: RunConfig) -> None:
    """Set the cuDNN flags of `config`; a flag that is None is unchanged.

    TF32 is set with the legacy switch only. It exists in every supported version and sets convolutions and recurrent layers
    together. Mixing it with ``fp32_precision`` makes reading either raise (torch 2.13).
    """
    for flag in ("enabled", "benchmark", "deterministic", "allow_tf32"):
        value = getattr(config, flag)
        if value is not None:
            setattr(torch.backends.cudnn, flag, value)


def current_config(name: str, device: torch.device) -> RunConfig:
    """The configuration `name` with the cuDNN flags as they are; a flag is None where `device` does not have it."""
    if backend(str(device)) != "cudnn":
        return RunConfig(name=name)
    flags = torch.backends.cudnn
    return RunConfig(
        name=name,
        enabled=flags.enabled,
        benchmark=flags.benchmark,
        deterministic=flags.deterministic,
        allow_tf32=flags.allow_tf32 if has_tf32(str(device)) else None,
    )


def prewarm(device: torch.device) -> None:
    """Create the device's context, library handles and the autograd thread, with a shape that no model has.

    The first step's duration then includes only the model's own work: algorithm choice and search, first allocations.
    """
    if device.type != "cuda":
        return
    with settings_restored("cudnn.benchmark"):
        torch.backends.cudnn.benchmark = False
        weight = torch.ones(1, 1, 3, 3, device=device, requires_grad=True)
        torch.nn.functional.conv2d(torch.ones(1, 1, 5, 7, device=device), weight).sum().backward()
        torch.cuda.synchronize(device)


def _usable_cores() -> int | None:
    """The cores that the process may use: its affinity, at most the limit of its container; None where unknown."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    if cores is None or not (quota.isdecimal() and period.isdecimal()):
        return cores
    return min(cores, max(1, round(int(quota) / int(period))))


def describe(device: torch.device | str) -> Environment:
    """The environment of this process, with the flags as read from torch."""
    device = torch.device(device)
    cuda = device.type == "cuda"
    properties = torch.cuda.get_device_properties(device) if cuda else None
    return Environment(
        device=device.type,
        device_name=properties.name if properties else _cpu_name(),
        torch=torch.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        cuda=torch.version.cuda if cuda else None,
        cudnn=_cudnn_version() if cuda else None,
        device_memory_bytes=properties.total_memory if properties else None,
        capability=f"{properties.major}.{properties.minor}" if properties else None,
        threads=torch.get_num_threads(),
        cores=_usable_cores(),
        flags=flags_snapshot(),
        variables=tuple(NamedValue(name=name, value=os.environ[name]) for name in VARIABLES if name in os.environ),
    )


def _cudnn_version() -> str | None:
    """cuDNN's version; None without cuDNN. A version that torch was not built for is not an error here, because it may work."""
    try:
        version = torch.backends.cudnn.version()
    except RuntimeError as error:
        return f"{UNREADABLE}: {str(error).splitlines()[0]}"
    return None if version is None else str(version)


def flags_snapshot() -> tuple[NamedValue, ...]:
    """The current flags that select algorithms and arithmetic. Flags that this torch lacks are left out."""
    read = ((name, _read_flag(read_flag)) for name, read_flag in _FLAGS)
    return tuple(NamedValue(name=name, value=value) for name, value in read if value is not None)


def flags_changed(before: Sequence[NamedValue], after: Sequence[NamedValue]) -> tuple[str, ...]:
    """The differences between two snapshots, as ``cudnn.benchmark: False -> True``."""
    now = {flag.name: _shortened(flag.value) for flag in after}
    was = {flag.name: _shortened(flag.value) for flag in before}
    return tuple(f"{name}: {was[name]} -> {value}" for name, value in now.items() if was.get(name, value) != value)


def _shortened(value: str) -> str:
    return UNREADABLE if value.startswith(UNREADABLE) else value


def index_of(device: torch.device) -> int:
    """The index of a CUDA device; the current device's if its name has none. Some torch functions require it."""
    return device.index if device.index is not None else torch.cuda.current_device()


def devices() -> tuple[Device, ...]:
    """All devices that torch detects, the CPU last."""
    result = []
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        card = torch.cuda.get_device_properties(i)
        capability = f"{card.major}.{card.minor}"
        result.append(Device(id=f"cuda:{i}", name=card.name, memory_bytes=card.total_memory, capability=capability))
    if torch.backends.mps.is_available():
        result.append(Device(id="mps", name="Apple Metal"))
    return (*result, Device(id="cpu", name=_cpu_name(), memory_bytes=_host_memory_bytes()))


def accelerator_platform() -> str | None:
    """The accelerator platform of this torch build: ``CUDA 13.0``, ``ROCm 6.4``; None for a CPU build."""
    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else None


def simd_name() -> str:
    """The vector instructions that torch uses on this CPU, such as ``AVX512``."""
    return torch.backends.cpu.get_cpu_capability()


def device_name(device: str) -> str:
    """torch's name of `device`; the model name for a CPU."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else _cpu_name()


def peak_rss_bytes() -> int:
    """The peak resident memory of the process.

    On Linux the peak of its address space (VmHWM, in KiB): `ru_maxrss` also counts that of the process that started it, as it was
    before the new program replaced it.
    """
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) * 1024
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024


UNREADABLE: Final = "unreadable"  # prefix of the value of a flag that raises when it is read
_FLAGS: Final[tuple[tuple[str, Callable[[], object]], ...]] = (
    *((name, partial(attrgetter(name), torch.backends)) for name in BACKEND_FLAGS),
    ("float32_matmul_precision", torch.get_float32_matmul_precision),
    ("deterministic_algorithms", torch.are_deterministic_algorithms_enabled),
)


def free_memory_bytes(device: str) -> int:
    """The memory of `device` that no process uses."""
    if device.startswith("cuda"):
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    return free_bytes()


def _read_flag(read: Callable[[], object]) -> str | None:
    """A flag's value; None if this torch lacks the flag."""
    try:
        return str(read())
    except AttributeError:
        return None
    except RuntimeError as error:  # mixed precision APIs raise on reading (torch 2.13)
        return f"{UNREADABLE}: {str(error).splitlines()[0]}"


def _host_memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # not available on this system
        return None


def _cpu_name() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()
