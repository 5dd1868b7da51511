"""Calls of torch's functions, as `torch.jit.trace` sees them: whole, where the dispatcher sees the ops they are made of.

A TorchFunctionMode is told of each. Functions written in Python would be told to it whole too, and so would hide the ones
they call; while it lasts, torch's Python functions look for tensors that override them only, not for modes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

Ended: TypeAlias = Callable[[str, tuple[Any, ...], Mapping[str, Any], Any], None]

_ASKING: Final[tuple[ModuleType, ...]] = (torch.overrides, torch.nn.functional, torch.functional, torch._tensor)
_DISABLED: Final = torch._C._disabled_torch_function_impl


class FunctionCalls(TorchFunctionMode):
    """Tells `ended` of every call of a function that torch has in C++: its name, arguments and result.

    `running` is the name of the call under way, None outside any. What a custom autograd function does inside is not told; it
    runs as ``PythonOp.<its class>``.
    """

    def __init__(self, ended: Ended) -> None:
        super().__init__()
        self._ended = ended
        self.running: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.running is not None or type(func) is FunctionType:
            return func(*args, **kwargs)
        name = _name(func)
        with self.call(name):
            out = func(*args, **kwargs)
        self._ended(name, args, kwargs, out)
        return out

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Ops belong to the call `name` while it lasts."""
        before, self.running = self.running, name
        try:
            yield
        finally:
            self.running = before

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches for as long as the block runs, and leaves torch as it was."""
        with _asking_for_tensors_only(), self._custom_functions_whole(), self:
            yield

    @contextmanager
    def _custom_functions_whole(self) -> Iterator[None]:
        original = torch.autograd.Function.__dict__["apply"]

        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            with self.call(f"PythonOp.{cls.__name__}"):
                return original.__get__(None, cls)(*args, **kwargs)

        torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            torch.autograd.Function.apply = original  # type: ignore[method-assign]


def _name(func: Any) -> str:
    """The op's name: without the underscore of in-place variants, which a trace does not keep."""
    name: str = getattr(func, "__name__", type(func).__name__)
    if name.startswith("__"):
        return name.strip("_")
    return name.rstrip("_")


def overridden(values: Iterable[Any]) -> bool:
    """Whether one of `values` is of a class that overrides torch's functions."""
    return any(
        getattr(type(value), "__torch_function__", _DISABLED) is not _DISABLED
        for value in values
        if type(value) is not Tensor
    )


@contextmanager
def _asking_for_tensors_only() -> Iterator[None]:
    answers = {
        "has_torch_function": overridden,
        "has_torch_function_unary": lambda value: overridden((value,)),
        "has_torch_function_variadic": lambda *values: overridden(values),
    }
    before = [(place, name, getattr(place, name)) for place in _ASKING for name in answers if hasattr(place, name)]
    for place, name, _ in before:
        setattr(place, name, answers[name])
    try:
        yield
    finally:
        for place, name, original in before:
            setattr(place, name, original)
