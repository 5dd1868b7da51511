"""Redirects moves to a GPU in user code that runs on meta or on the CPU.

Model files often name their device: ``.cuda()``, ``device="cuda"``, ``.to(device)`` with a global ``device``. In a static count
and on a machine without that device, such code means "the device of this run". Inside `moves_redirected`:

- a move to an accelerator (``cuda``, ``mps``, ``xpu`` …, or a device index) goes to the device of the run;
- a tensor created on an accelerator is created on the device of the run;
- with `join`, tensors created on the CPU, or without a device, are created on the device of the run too, and a meta tensor stays
  on meta when it is moved to the CPU. This is for forward on meta, where a tensor on another device is an error. Constructors do
  not use it, because they may read the values of tensors that they create on the CPU;
- functions of ``torch.cuda`` that need a GPU do nothing, on machines that have none (`missing_accelerators`).

``torch.cuda.is_available()`` keeps its answer, so a file that chooses its device with it still does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from profiler_kit.foreign import attribute_of
from profiler_kit.meta.missing_accelerators import LEGACY_NAME, LegacyType, substitutes
from profiler_kit.meta.values import copy_values

HOST: Final = torch.device("cpu")
_NAMED: Final = re.compile(r"\b(cuda|mps|xpu)\b|\.pin_memory\(")
_HOSTS: Final = ("cpu", "meta")
_META: Final = "meta"
_TO: Final = Tensor.to
_TYPE: Final = Tensor.type
_TO_METHODS: Final[Mapping[Any, str]] = {
    getattr(Tensor, name): name for name in ("cuda", "xpu", "mps", "hpu", "npu", "ipu") if hasattr(Tensor, name)
}
_PINNING: Final = frozenset({Tensor.pin_memory, Tensor.is_pinned, Tensor.record_stream})
_HANDLED: Final = frozenset({_TO, _TYPE, Tensor.cpu, *_TO_METHODS, *_PINNING})

_active: list[DeviceMoves] = []


class DeviceMoves(TorchFunctionMode):
    """The mode of `moves_redirected`. `requested` are the types of the accelerators that the code asked for."""

    def __init__(self, device: torch.device, *, join: bool, requested: set[str] | None = None) -> None:
        super().__init__()
        self.device = device
        self.requested: set[str] = set() if requested is None else requested
        self.joins = join
        self._constructors = _constructors() if join else frozenset()

    @property
    def is_meta(self) -> bool:
        """Whether the run is on meta."""
        return self.device.type == _META

    def request(self, kind: str) -> None:
        """Record that the code asked for an accelerator of type `kind`."""
        self.requested.add(kind)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords: dict[str, Any] = dict(kwargs) if kwargs else {}
        if func in _HANDLED:
            return self._handle(func, args, keywords)
        if "device" in keywords:
            device = keywords["device"]
            if device is None:
                if self.joins and func in self._constructors:
                    keywords["device"] = self.device
            elif self._is_redirected(device):
                keywords["device"] = self.device
            if keywords.get("pin_memory"):
                keywords["pin_memory"] = False
        elif self.joins and func in self._constructors:
            keywords["device"] = self.device
        return func(*args, **keywords)

    def _is_redirected(self, device: Any) -> bool:
        """Whether `device`, the argument of a function that creates a tensor, is replaced. Records a request."""
        kind = accelerator(device)
        if kind is not None:
            self.request(kind)
            return True
        return self.joins and torch.device(device).type != self.device.type

    def _handle(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if func is _TO:
            return self._move(args[0], args[1:], keywords)
        if func is _TYPE:
            return self._cast(args, keywords)
        tensor = args[0]
        if func in _PINNING:  # pinned memory is memory of the host that a GPU reads
            return False if func is Tensor.is_pinned else tensor if func is Tensor.pin_memory else None
        if func is Tensor.cpu:
            return self._to_host(tensor, lambda: func(*args, **keywords))
        self.request(_TO_METHODS[func])
        options: dict[str, Any] = {
            name: keywords[name] for name in ("non_blocking", "memory_format") if name in keywords
        }
        return self._to(tensor, (), options)

    def _move(self, tensor: Tensor, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of ``tensor.to(*args, **keywords)`` on the device of the run."""
        device = keywords.get("device", args[0] if args else None)
        if isinstance(device, Tensor):
            device = device.device
            if tensor.is_meta or not self.joins:
                return _TO(tensor, *args, **keywords)
        if device is None or isinstance(device, torch.dtype):
            return _TO(tensor, *args, **keywords)
        kind = accelerator(device)
        if kind is not None:
            self.request(kind)
        elif tensor.is_meta and torch.device(device).type == "cpu":
            return self._to_host(tensor, lambda: _TO(tensor, *args, **keywords), args[1:], keywords)
        elif not self.joins:
            return _TO(tensor, *args, **keywords)
        return self._to(tensor, () if "device" in keywords else args[1:], keywords)

    def _to(self, tensor: Tensor, args: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor:
        """`tensor` on the device of the run, with the remaining arguments of ``Tensor.to``. A meta tensor stays on meta."""
        device = tensor.device if tensor.is_meta else self.device
        moved: Tensor = _TO(tensor, device, *args, **{n: v for n, v in keywords.items() if n != "device"})
        return copy_values(moved, tensor) if moved.is_meta and not tensor.is_meta else moved

    def _to_host(
        self, tensor: Tensor, move: Callable[[], Any], args: tuple[Any, ...] = (), keywords: Mapping[str, Any] = {}
    ) -> Any:
        """A tensor moved to the CPU. A meta tensor without known values stays on meta, if this is where the run is."""
        if not (tensor.is_meta and self.is_meta):
            return move()
        try:
            return move()  # values are known if `ValueTracking` is active
        except NotImplementedError:
            return self._to(tensor, args, dict(keywords))

    def _cast(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of ``tensor.type(kind)``, which changes the dtype and the device."""
        tensor, kind = args[0], args[1] if len(args) > 1 else keywords.get("dtype")
        name = kind if isinstance(kind, str) else kind.__name__ if isinstance(kind, LegacyType) else None
        legacy = LEGACY_NAME.fullmatch(name or "")
        if legacy is not None:
            self.request(legacy["device"])
            return self._to(tensor, (), {"dtype": _legacy_dtype(legacy["type"])})
        if kind is None or isinstance(kind, torch.dtype) or not tensor.is_meta:
            return _TYPE(*args, **keywords)
        legacy_name = str(name or getattr(kind, "__name__", "")).removeprefix("torch.")
        dtype = _legacy_dtype(legacy_name.removeprefix("meta."))  # what type() of a meta tensor returns
        return _TYPE(*args, **keywords) if dtype is None else self._to(tensor, (), {"dtype": dtype})


def accelerator(device: Any) -> str | None:
    """The type of the accelerator that `device` names; None for the CPU and meta.

    A device is a ``torch.device``, its text, or an index. Index -1 is what ``get_device()`` returns for the CPU.
    """
    if isinstance(device, bool) or device is None:
        return None
    if isinstance(device, int):
        return "cuda"
    kind = device.type if isinstance(device, torch.device) else str(device).partition(":")[0]
    return None if kind in _HOSTS else kind


def names_accelerator(functions: Iterable[Any]) -> bool:
    """Whether source files of these classes and functions mention an accelerator, or are unknown; torch's own do not count."""
    names = {attribute_of(function, "__module__", str, "") for function in functions}
    return any(_file_names_accelerator(name) for name in names if name.partition(".")[0] != "torch")


def _file_names_accelerator(module_name: str) -> bool:
    file = attribute_of(sys.modules.get(module_name), "__file__", str)
    if file is None:
        return True  # defined in an interactive session or by a pickle
    try:
        return _NAMED.search(Path(file).read_text(encoding="utf-8", errors="replace")) is not None
    except OSError:
        return True


@contextmanager
def moves_redirected(
    device: torch.device, *, join: bool = False, requested: set[str] | None = None
) -> Iterator[DeviceMoves]:
    """Run user code of a target on `device` inside the block; its moves to an accelerator stay on `device`.

    `join` also redirects tensors created on the CPU (see the module's docstring). Does nothing if `device` is an accelerator.
    Yields the mode. The types of the accelerators that the code asks for are added to `requested`, or to the set of the
    enclosing block.
    """
    if requested is None and _active:
        requested = _active[-1].requested
    mode = DeviceMoves(device, join=join, requested=requested)
    if device.type not in _HOSTS:
        yield mode
        return
    _active.append(mode)
    try:
        with substitutes(device, mode.request), mode:
            yield mode
    finally:
        _active.pop()


@cache
def _constructors() -> frozenset[Callable[..., Any]]:
    """The functions that create a tensor on the default device: those that ``with torch.device(...)`` changes."""
    from torch.utils._device import _device_constructors

    return frozenset(_device_constructors())


@contextmanager
def joins_paused() -> Iterator[None]:
    """Let tensors that are created on the CPU stay there inside the block: an optimizer reads its step counts there."""
    joining = [mode for mode in _active if mode.joins]
    for mode in joining:
        mode.joins = False
    try:
        yield
    finally:
        for mode in joining:
            mode.joins = True


def _legacy_dtype(name: str) -> torch.dtype | None:
    """The dtype of a legacy tensor type such as ``FloatTensor``; None for an unknown name."""
    legacy = getattr(torch, name, None)
    return getattr(legacy, "dtype", None)
