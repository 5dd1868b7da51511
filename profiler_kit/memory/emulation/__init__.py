"""What CUDA does otherwise than tensors without data, done on the latter: a drop-in folder, one file per family.

A function under `@emulates` stands in for the torch functions of the names it gives, whoever calls them. It is called with
the emulation and the function, then as the function is, and returns what CUDA would::

    @emulates("dropout")
    def dropout(emulation: Emulation, func: Call, input: Tensor, p: float = 0.5, train: bool = True) -> object: ...

A class under `@patch` is a context that is entered for as long as the emulation lasts.
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
from profiler_kit.memory.emulation._plain import plain_functions
from profiler_kit.memory.scratch import OpCall

Call: TypeAlias = Callable[..., Any]
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
Stand: TypeAlias = Callable[..., Any]  # of the emulation, the function, and what that takes
Cast: TypeAlias = Callable[["Emulation", str, Args, Kwargs], tuple[Args, Kwargs]]
Patch: TypeAlias = Callable[["Emulation"], AbstractContextManager[None]]


class Libraries(Protocol):
    """Whoever wants to know what libraries take behind functions that are replaced."""

    def use(self, call: OpCall) -> None:
        """A library takes scratch for `call`."""

    def keep(self, keeper: str, figure: Figure, op: str) -> None:
        """`keeper` takes bytes at its first use, for good."""


_STANDS: Final[dict[str, Stand]] = {}
_CASTS: Final[list[Cast]] = []
_PATCHES: Final[list[Patch]] = []


def emulates(*names: str) -> Callable[[Stand], Stand]:
    """A decorator: its function stands in for torch functions called `names`."""

    def register(stand: Stand) -> Stand:
        for name in names:
            _STANDS[name] = stand
        return stand

    return register


def casts(cast: Cast) -> Cast:
    """A decorator: its function may change the arguments of any torch function before it runs."""
    _CASTS.append(cast)
    return cast


def patch(made: Patch) -> Patch:
    """A decorator: the context that its function makes is entered while the emulation lasts."""
    _PATCHES.append(made)
    return made


@cache
def import_all() -> None:
    """Imports every file of this folder, once."""
    _family.members(sys.modules[__name__])


class Emulation(TorchFunctionMode):
    """A function mode under which torch functions behave as they do on `device`.

    `libraries` is told what they take behind functions that are replaced; `note` what is emulated only roughly.
    `weights` holds the low-precision copies that autocast keeps of parameters.
    """

    def __init__(self, device: Device, libraries: Libraries, note: Callable[[str], None]) -> None:
        super().__init__()
        import_all()
        self.device = device
        self.libraries = libraries
        self.note = note
        self.weights: dict[int, torch.Tensor] = {}
        self._stands = dict(_STANDS) if device.is_cuda else {}
        self._casts = tuple(_CASTS) if device.is_cuda else ()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return func(*args, **kwargs)
        for cast in self._casts:
            args, kwargs = cast(self, name, args, kwargs)
        stand = self._stands.get(name)
        return func(*args, **kwargs) if stand is None else stand(self, func, *args, **kwargs)


@contextmanager
def emulated(device: Device, libraries: Libraries, note: Callable[[str], None]) -> Iterator[Emulation]:
    """While it lasts, what torch asks about devices is answered as on `device`; everything is put back after.

    Yields the emulation, to be entered around what calls torch's functions: forward, loss and backward.
    """
    emulation = Emulation(device, libraries, note)
    with ExitStack() as stack:
        if device.is_cuda:
            stack.enter_context(plain_functions())
            for made in _PATCHES:
                stack.enter_context(made(emulation))
        yield emulation
