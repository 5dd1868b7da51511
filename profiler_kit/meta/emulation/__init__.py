"""The behavior of a device on meta tensors. A drop-in folder: one file per family of functions.

Counting and the simulation of memory run the step inside the emulation, so both see the same ops and saved tensors.

A function under `@emulates` replaces the torch functions with the given names. It receives the emulation, the original
function, and the call's arguments, and returns the result that CUDA would return::

    @emulates("dropout")
    def dropout(emulation: Emulation, func: Call, input: Tensor, p: float = 0.5, train: bool = True) -> object: ...

It replaces them on CUDA, and with ``cpu=True`` also on the CPU. A context manager under `@patch` is active for the duration of
the emulation of CUDA.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeAlias

import torch
from torch.overrides import TorchFunctionMode

from profiler_kit import _family
from profiler_kit.devices.device import Device
from profiler_kit.meta.emulation._patching import override_checks_ignore_modes
from profiler_kit.meta.emulation.library_calls import Libraries

Call: TypeAlias = Callable[..., Any]
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
Replacement: TypeAlias = Callable[..., Any]  # (emulation, original function, *arguments)
Cast: TypeAlias = Callable[["Emulation", str, Args, Kwargs], tuple[Args, Kwargs]]
Patch: TypeAlias = Callable[["Emulation"], AbstractContextManager[None]]


_REPLACEMENTS: Final[dict[str, Replacement]] = {}
_ON_CPU: Final[set[str]] = set()  # the functions that are replaced on the CPU too
_CASTS: Final[list[Cast]] = []
_PATCHES: Final[list[Patch]] = []


def emulates(*names: str, cpu: bool = False) -> Callable[[Replacement], Replacement]:
    """A decorator: its function replaces the torch functions called `names` on CUDA, and with `cpu` also on the CPU."""

    def register(replacement: Replacement) -> Replacement:
        for name in names:
            _REPLACEMENTS[name] = replacement
        if cpu:
            _ON_CPU.update(names)
        return replacement

    return register


def casts(cast: Cast) -> Cast:
    """A decorator: its function can change the arguments of any torch function before the call."""
    _CASTS.append(cast)
    return cast


def patch(context: Patch) -> Patch:
    """A decorator: its context manager is active during the emulation."""
    _PATCHES.append(context)
    return context


@cache
def import_all() -> None:
    """Import every file of this folder once."""
    _family.members(sys.modules[__name__])


class Emulation(TorchFunctionMode):
    """A function mode in which torch functions behave as on `device`.

    `libraries` receives library calls inside replaced functions. `note` receives the limits of the emulation.
    `weights` holds autocast's low-precision copies of parameters, by id. `decomposed_attention` counts the calls of attention
    for which the device has no fused kernel, by dtype.
    """

    def __init__(self, device: Device, libraries: Libraries, note: Callable[[str], None]) -> None:
        super().__init__()
        import_all()
        self.device = device
        self.libraries = libraries
        self.note = note
        self.weights: dict[int, torch.Tensor] = {}
        self.decomposed_attention: Counter[torch.dtype] = Counter()
        self._replacements = {
            name: replacement for name, replacement in _REPLACEMENTS.items() if device.is_cuda or name in _ON_CPU
        }
        self._casts = tuple(_CASTS) if device.is_cuda else ()

    def autocast(self, dtype: torch.dtype | None) -> AbstractContextManager[Any]:
        """Autocast to `dtype` as on the device. No autocast without a dtype, and on the CPU."""
        if dtype is None or not self.device.is_cuda:
            return contextlib.nullcontext()
        return torch.autocast("cuda", dtype=dtype)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return func(*args, **kwargs)
        for cast in self._casts:
            args, kwargs = cast(self, name, args, kwargs)
        # torch's Python functions, which get here for tensor subclasses such as nested tensors, call the C++ functions later
        replacement = self._replacements.get(name) if type(func) is not FunctionType else None
        return func(*args, **kwargs) if replacement is None else replacement(self, func, *args, **kwargs)


@contextmanager
def emulated(device: Device, libraries: Libraries, note: Callable[[str], None]) -> Iterator[Emulation]:
    """Inside the block, torch's device checks answer as on `device`. Everything is restored afterwards.

    Yields the emulation. Enter it around forward, loss and backward.
    """
    emulation = Emulation(device, libraries, note)
    with ExitStack() as stack:
        stack.enter_context(override_checks_ignore_modes())
        for context in _PATCHES if device.is_cuda else ():
            stack.enter_context(context(emulation))
        yield emulation


def raised_in_replacement(error: BaseException) -> bool:
    """Whether a replacement function of this folder raised `error`, directly or in a call that it made."""
    folder, frames = str(Path(__file__).parent), traceback.extract_tb(error.__traceback__)
    return any(frame.filename.startswith(folder) and frame.filename != __file__ for frame in frames)
