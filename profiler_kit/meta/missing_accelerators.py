"""Substitutes for functions of ``torch.cuda``, ``torch.xpu`` and ``torch.mps`` that fail on a machine without the device.

A constructor that calls ``torch.cuda.synchronize()`` or reads the name of the GPU must not prevent a static count. The
substitutes do nothing, and report an unknown device without memory or capabilities. They are active while user code runs, and
only for devices that this machine does not have.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import torch

LEGACY_NAME: Final = re.compile(r"torch\.(?P<device>cuda|xpu)\.(?P<type>\w+Tensor)")
_LEGACY: Final = (
    "FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor", "ShortTensor", "CharTensor",
    "ByteTensor", "BoolTensor",
)  # fmt: skip
# torch.float32 is the type that a legacy program asks for by set_default_tensor_type("torch.cuda.FloatTensor")
_DEFAULT_TYPES: Final = {"FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16}
_MISSING_DEVICE: Final = "no device"

_active: list[tuple[torch.device, Callable[[str], None]]] = []


class Placeholder:
    """A stream, event or context of a device that does not exist: it accepts every call, and waits for nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Accept the arguments of every class that it replaces."""

    def __enter__(self) -> Placeholder:
        return self

    def __exit__(self, *error: Any) -> None:
        return None

    def __call__(self, function: Any) -> Any:
        """Return `function`: contexts are also used as decorators."""
        return function

    def query(self) -> bool:
        """Whether all work has finished."""
        return True

    def elapsed_time(self, other: Any) -> float:
        """The milliseconds between two events, during which no device did anything."""
        return 0.0

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    record = wait = wait_event = wait_stream = record_event = synchronize = _nothing


class LegacyType(type):
    """The class of the legacy types: ``torch.cuda.FloatTensor`` is a type that creates tensors of one dtype on the GPU."""

    dtype: torch.dtype
    original: Any
    device_kind: str

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.original)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """A tensor of the type on the device of the run."""
        if not _active:
            return cls.original(*args, **kwargs)
        device, request = _active[-1]
        request(cls.device_kind)
        host_type = getattr(torch, cls.__name__.rpartition(".")[2])
        return host_type(*args, **kwargs).to(device)


@contextlib.contextmanager
def substitutes(device: torch.device, request: Callable[[str], None]) -> Iterator[None]:
    """Put the substitutes in place inside the block. `request` is called with the type of the accelerator that is used.

    Tensors of legacy types are created on `device`.
    """
    _active.append((device, request))
    outermost = len(_active) == 1
    saved = _install() if outermost else []
    try:
        yield
    finally:
        _active.pop()
        for module, name, value in reversed(saved):
            setattr(module, name, value)


def _install() -> list[tuple[Any, str, Any]]:
    """Install the substitutes, and return the original attributes."""
    saved: list[tuple[Any, str, Any]] = []

    def replace_attribute(module: Any, name: str, value: Any) -> None:
        saved.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    for name in _LEGACY:
        original = getattr(torch.cuda, name, None)
        if original is not None:
            body = {"dtype": original.dtype, "original": original, "device_kind": "cuda", "is_cuda": True}
            replace_attribute(torch.cuda, name, LegacyType(f"torch.cuda.{name}", (), body))
    for kind, module in (("cuda", torch.cuda), ("xpu", torch.xpu), ("mps", torch.mps)):
        if is_available(kind):
            continue
        for name, value in _functions(module, kind).items():
            replace_attribute(module, name, value)
    if not torch.cuda.is_available():
        for name in _NVTX:
            replace_attribute(torch.cuda.nvtx, name, _requesting("cuda", getattr(torch.cuda.nvtx, name), int))
        replace_attribute(torch.cuda.nvtx, "range", type("range", (Placeholder,), {}))
    replace_attribute(torch, "set_default_device", _without_accelerators(torch.set_default_device))
    replace_attribute(torch, "set_default_tensor_type", _set_default_type(torch.set_default_tensor_type))
    replace_attribute(torch.amp.autocast_mode.autocast, "__init__", _autocast_init(torch.autocast.__init__))
    return saved


def is_available(kind: str) -> bool:
    """Whether this machine has an accelerator of type `kind`."""
    if kind == "mps":
        return torch.backends.mps.is_available()
    module = getattr(torch, kind, None)
    return module is not None and bool(module.is_available())


_SILENT: Final = (
    "init", "synchronize", "set_device", "set_stream", "reset_peak_memory_stats", "reset_max_memory_allocated",
    "reset_max_memory_cached", "reset_accumulated_memory_stats", "ipc_collect", "set_per_process_memory_fraction",
)  # fmt: skip
_ZERO: Final = (
    "current_device", "utilization", "temperature", "current_allocated_memory", "driver_allocated_memory",
    "recommended_max_memory",
)  # fmt: skip
_CLASSES: Final = ("Stream", "Event", "stream", "device", "device_of", "StreamContext")
_NVTX: Final = ("range_push", "range_pop", "mark", "range_start", "range_end")


def _functions(module: ModuleType, kind: str) -> dict[str, Any]:
    """The substitutes for the functions of `module` that fail without the device, by name.

    Each name has its own object: torch._dynamo, if it is imported meanwhile, needs distinct ones.
    """
    results: dict[str, Callable[[], Any]] = {
        **dict.fromkeys(_SILENT, _nothing),
        **dict.fromkeys(_ZERO, int),
        "current_stream": Placeholder,
        "default_stream": Placeholder,
        "get_device_name": lambda: _MISSING_DEVICE,
        "get_device_capability": lambda: (0, 0),
        "get_device_properties": _no_properties,
        "mem_get_info": lambda: (0, 0),
        "memory_summary": str,
        "get_rng_state": torch.get_rng_state,
        "get_rng_state_all": list,
    }
    functions: dict[str, Any] = {
        name: _requesting(kind, getattr(module, name), result)
        for name, result in results.items()
        if hasattr(module, name)
    }
    return functions | {name: type(name, (Placeholder,), {}) for name in _CLASSES if hasattr(module, name)}


def _nothing() -> None:
    """Do nothing."""


def _requesting(kind: str, original: Callable[..., Any], result: Callable[[], Any]) -> Callable[..., Any]:
    """A substitute for `original` that returns ``result()`` and records that the code asked for a device of type `kind`.

    Calls from torch itself get the original answer: torch tries such functions to find out whether there is a device.
    """

    def substitute(*args: Any, **kwargs: Any) -> Any:
        caller: str = sys._getframe(1).f_globals.get("__name__", "")
        if not _active or caller.partition(".")[0] == "torch":
            return original(*args, **kwargs)
        _active[-1][1](kind)
        return result()

    return substitute


def _no_properties() -> SimpleNamespace:
    return SimpleNamespace(
        name=_MISSING_DEVICE, major=0, minor=0, total_memory=0, multi_processor_count=0, warp_size=0,
        is_integrated=0, is_multi_gpu_board=0,
    )  # fmt: skip


def _without_accelerators(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.set_default_device``, which ignores accelerators: the run has its own device."""

    def set_default_device(device: Any) -> None:
        kind = None if device is None or isinstance(device, int) else torch.device(device).type
        if not _active or kind in (None, "cpu", "meta"):
            original(device)
        else:
            _active[-1][1](kind)

    return set_default_device


def _set_default_type(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.set_default_tensor_type``, which sets the dtype only if the type is one of CUDA."""

    def set_default_tensor_type(kind: Any) -> None:
        name = kind.__name__ if isinstance(kind, LegacyType) else str(kind)
        legacy = LEGACY_NAME.fullmatch(name)
        if not _active or legacy is None:
            original(kind)
        else:
            _active[-1][1](legacy["device"])
            torch.set_default_dtype(_DEFAULT_TYPES.get(legacy["type"], torch.get_default_dtype()))

    return set_default_tensor_type


def _lacks_autocast(device_type: str) -> bool:
    """Whether autocast for this device type cannot work here. The emulation of CUDA changes torch's answer for CUDA."""
    if device_type == "cuda":
        return bool(torch.cuda.amp.common.amp_definitely_not_available())
    return device_type in ("xpu", "mps") and not is_available(device_type)


def _autocast_init(original: Callable[..., None]) -> Callable[..., None]:
    """``autocast.__init__``, which turns itself off for meta and for missing devices instead of failing or warning.

    Autocast for one device never changes tensors of another.
    """

    def initialize(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        if device_type == "meta":
            original(self, "cpu", enabled=False)
            return
        if _active and _lacks_autocast(device_type):
            _active[-1][1](device_type)
            args, kwargs = args[:1], {**kwargs, "enabled": False}
        original(self, device_type, *args, **kwargs)

    return initialize
