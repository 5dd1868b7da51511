"""The process and device a run happens in: configuration flags set, handles created, and everything written down."""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final

import torch

from profiler_kit.errors import UsageError
from profiler_kit.records.configs import Backend, Environment, NamedValue, RunConfig
from profiler_kit.records.machine import Device

# Variables that change which algorithm or arithmetic is chosen, or how memory is handed out.
VARIABLES: Final = (
    "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDNN_CONV_WSCAP_DBG", "CUDNN_ERRATA_JSON_FILE",
    "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", "TORCH_CUDNN_V8_API_DISABLED", "TORCH_CUDNN_USE_HEURISTIC_MODE_B",
    "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_MIOPEN_SUGGEST_NHWC", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
)  # fmt: skip


def pick_device(asked: str) -> str:
    """The device meant by `asked`: ``auto`` is CUDA where there is one, else MPS, else the CPU.

    Raises UsageError for a device that does not exist, here or at all.
    """
    if asked != "auto":
        _check_device(asked)
        return asked
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _check_device(asked: str) -> None:
    where = f"--device {asked}"
    match = re.fullmatch(r"(cpu|cuda|mps)(?::([0-9]+))?", asked)
    if match is None:
        raise UsageError("no such device", where=where, hint="take auto, cpu, cuda, cuda:1 … or mps")
    kind, index = match.group(1), int(match.group(2) or 0)
    available = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[kind]
    if available == 0:
        reason = (
            "this torch is built without CUDA" if kind == "cuda" and not torch.cuda._is_compiled() else "none is seen"
        )
        raise UsageError(f"no {kind} device here: {reason}", where=where, hint="take --device auto or --device cpu")
    if index >= available:
        last = f"{kind}:{available - 1}" if available > 1 else kind
        raise UsageError(f"no such device: the last one is {last}", where=where, hint=f"take --device {last}")


def backend(device: str) -> Backend:
    """Which library runs convolutions on `device`; ``native`` where none does but torch's own kernels."""
    if device.startswith("cuda"):
        if not torch.backends.cudnn.is_available():  # built without it; on ROCm the same word means MIOpen
            return "native"
        return "miopen" if torch.version.hip else "cudnn"
    return "mps" if device.startswith("mps") else "cpu"


def has_tf32(device: str) -> bool:
    """Whether `device` computes in TF32: compute capability 8.0 and later."""
    return device.startswith("cuda") and torch.version.hip is None and torch.cuda.get_device_capability(device)[0] >= 8


def apply(config: RunConfig) -> None:
    """Sets the cuDNN flags of `config`; a flag that is None is left as it is.

    TF32 by the legacy switch alone: it exists in every supported version, sets convolutions and recurrent layers together, and
    mixing it with ``fp32_precision`` makes reading either raise (torch 2.13).
    """
    for flag in ("enabled", "benchmark", "deterministic", "allow_tf32"):
        value = getattr(config, flag)
        if value is not None:
            setattr(torch.backends.cudnn, flag, value)


def prewarm(device: torch.device) -> None:
    """Creates the device's context, library handles and the autograd thread with a shape no model has.

    So that the first step's duration is the model's own: algorithm choice, tuning, first allocations.
    """
    if device.type != "cuda":
        return
    benchmark = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    weight = torch.ones(1, 1, 3, 3, device=device, requires_grad=True)
    torch.nn.functional.conv2d(torch.ones(1, 1, 5, 7, device=device), weight).sum().backward()
    torch.cuda.synchronize(device)
    torch.backends.cudnn.benchmark = benchmark


def describe(device: torch.device | str) -> Environment:
    """What this process runs on, with the flags as torch reads them back."""
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
        flags=flags_snapshot(),
        variables=tuple(NamedValue(name=name, value=os.environ[name]) for name in VARIABLES if name in os.environ),
    )


def _cudnn_version() -> str | None:
    """cuDNN's version; None without it. One that torch was not built for is no reason to fail: convolutions may run in it."""
    try:
        version = torch.backends.cudnn.version()
    except RuntimeError as error:
        return f"{UNREADABLE}: {str(error).splitlines()[0]}"
    return None if version is None else str(version)


def flags_snapshot() -> tuple[NamedValue, ...]:
    """The flags that choose algorithms and arithmetic, as torch reads them back now; those that this torch lacks are left out."""
    read = ((name, _read(how)) for name, how in _FLAGS)
    return tuple(NamedValue(name=name, value=value) for name, value in read if value is not None)


def flags_changed(before: Sequence[NamedValue], after: Sequence[NamedValue]) -> tuple[str, ...]:
    """What differs between two snapshots, as ``cudnn.benchmark: False -> True``."""
    now = {flag.name: _in_short(flag.value) for flag in after}
    was = {flag.name: _in_short(flag.value) for flag in before}
    return tuple(f"{name}: {was[name]} -> {value}" for name, value in now.items() if was.get(name, value) != value)


def _in_short(value: str) -> str:
    return UNREADABLE if value.startswith(UNREADABLE) else value


def index_of(device: torch.device) -> int:
    """The number of a CUDA device; without one in its name, of the current one. Some of torch's functions want it so."""
    return device.index if device.index is not None else torch.cuda.current_device()


def devices() -> tuple[Device, ...]:
    """Every device torch sees, the CPU last."""
    seen = []
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        card = torch.cuda.get_device_properties(i)
        capability = f"{card.major}.{card.minor}"
        seen.append(Device(id=f"cuda:{i}", name=card.name, memory_bytes=card.total_memory, capability=capability))
    if torch.backends.mps.is_available():
        seen.append(Device(id="mps", name="Apple Metal"))
    return (*seen, Device(id="cpu", name=_cpu_name(), memory_bytes=_host_memory_bytes()))


def built_for() -> str | None:
    """The accelerator platform torch was built for: ``CUDA 13.0``, ``ROCm 6.4``; None for a CPU build."""
    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else None


def simd() -> str:
    """The vector instructions torch uses on this CPU, as it names them: ``AVX512``."""
    return torch.backends.cpu.get_cpu_capability()


def device_name(device: str) -> str:
    """What torch calls `device`; a CPU's model name."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else _cpu_name()


def peak_rss_bytes() -> int:
    """The process's largest resident set so far; Linux counts it in KiB, macOS in bytes."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024


UNREADABLE: Final = "unreadable"  # begins the value of a flag that raises when it is read
_BACKEND_FLAGS: Final = (
    "cudnn.enabled", "cudnn.benchmark", "cudnn.benchmark_limit", "cudnn.deterministic", "cudnn.allow_tf32",
    "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision",  # since torch 2.9
    "cuda.matmul.allow_tf32", "cuda.matmul.fp32_precision",
)  # fmt: skip
_FLAGS: Final[tuple[tuple[str, Callable[[], object]], ...]] = (
    *((name, partial(attrgetter(name), torch.backends)) for name in _BACKEND_FLAGS),
    ("float32_matmul_precision", torch.get_float32_matmul_precision),
    ("deterministic_algorithms", torch.are_deterministic_algorithms_enabled),
)


def _read(read: Callable[[], object]) -> str | None:
    """A flag's value; None where this torch has no such flag."""
    try:
        return str(read())
    except AttributeError:
        return None
    except RuntimeError as error:  # mixed precision APIs raise on reading (torch 2.13)
        return f"{UNREADABLE}: {str(error).splitlines()[0]}"


def _host_memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # a system that has no such names
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
