"""CUDA behavior on meta tensors. A drop-in folder: one file per family of functions.

A function under `@emulates` replaces the torch functions with the given names. It receives the emulation, the original
function, and the call's arguments, and returns the result that CUDA would return::

    @emulates("dropout")
    def dropout(emulation: Emulation, func: Call, input: Tensor, p: float = 0.5, train: bool = True) -> object: ...

A context manager under `@patch` is active for the duration of the emulation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from typing import Any, Final, Protocol, TypeAlias

import torch
from torch.overrides import TorchFunctionMode

from profiler_kit import _family
from profiler_kit.devices.device import Device, Figure
from profiler_kit.memory.emulation._patching import override_checks_ignore_modes
from profiler_kit.memory.workspace import OpCall

Call: TypeAlias = Callable[..., Any]
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
Replacement: TypeAlias = Callable[..., Any]  # (emulation, original function, *arguments)
Cast: TypeAlias = Callable[["Emulation", str, Args, Kwargs], tuple[Args, Kwargs]]
Patch: TypeAlias = Callable[["Emulation"], AbstractContextManager[None]]


class Libraries(Protocol):
    """A receiver of library allocations inside replaced functions."""

    def use_workspace(self, call: OpCall) -> None:
        """A library allocates the temporary workspace of `call`."""

    def use_handle(self, handle: str, figure: Figure, op: str) -> None:
        """`op` uses a library handle, which allocates `figure` bytes at its first use and never releases them."""


_REPLACEMENTS: Final[dict[str, Replacement]] = {}
_CASTS: Final[list[Cast]] = []
_PATCHES: Final[list[Patch]] = []


def emulates(*names: str) -> Callable[[Replacement], Replacement]:
    """A decorator: its function replaces the torch functions called `names`."""

    def register(replacement: Replacement) -> Replacement:
        for name in names:
            _REPLACEMENTS[name] = replacement
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

    `libraries` receives library allocations inside replaced functions. `note` receives the limits of the emulation.
    `weights` holds autocast's low-precision copies of parameters, by id.
    """

    def __init__(self, device: Device, libraries: Libraries, note: Callable[[str], None]) -> None:
        super().__init__()
        import_all()
        self.device = device
        self.libraries = libraries
        self.note = note
        self.weights: dict[int, torch.Tensor] = {}
        self._replacements = dict(_REPLACEMENTS) if device.is_cuda else {}
        self._casts = tuple(_CASTS) if device.is_cuda else ()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return func(*args, **kwargs)
        for cast in self._casts:
            args, kwargs = cast(self, name, args, kwargs)
        replacement = self._replacements.get(name)
        return func(*args, **kwargs) if replacement is None else replacement(self, func, *args, **kwargs)


@contextmanager
def emulated(device: Device, libraries: Libraries, note: Callable[[str], None]) -> Iterator[Emulation]:
    """Inside the block, torch's device checks answer as on `device`. Everything is restored afterwards.

    Yields the emulation. Enter it around forward, loss and backward.
    """
    emulation = Emulation(device, libraries, note)
    with ExitStack() as stack:
        if device.is_cuda:
            stack.enter_context(override_checks_ignore_modes())
            for context in _PATCHES:
                stack.enter_context(context(emulation))
        yield emulation
