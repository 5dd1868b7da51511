"""Calls of torch's C++ functions, as `torch.jit.trace` records them: one call, not the ops that it consists of.

A TorchFunctionMode receives every call. torch's Python functions would reach the mode too, and their inner C++ calls would
then be hidden. While the mode is active, torch's Python functions therefore check for tensor subclasses only, not for modes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

OnCall: TypeAlias = Callable[[str, tuple[Any, ...], Mapping[str, Any], Any], None]  # name, args, kwargs, result

_OVERRIDE_CHECKERS: Final[tuple[ModuleType, ...]] = (
    torch.overrides,
    torch.nn.functional,
    torch.functional,
    torch._tensor,
)
_DISABLED: Final = torch._C._disabled_torch_function_impl


class FunctionCalls(TorchFunctionMode):
    """Call `on_call` after every call of a torch C++ function, with its name, arguments and result.

    `running` is the name of the running call, None outside a call. A custom autograd function runs as one call named
    ``PythonOp.<class name>``; calls inside it are not reported.
    """

    def __init__(self, on_call: OnCall) -> None:
        super().__init__()
        self._on_call = on_call
        self.running: str | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.running is not None or type(func) is FunctionType:
            return func(*args, **kwargs)
        name = _name(func)
        with self.call(name):
            out = func(*args, **kwargs)
        self._on_call(name, args, kwargs, out)
        return out

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Inside the block, ops belong to the call `name`."""
        outer_call, self.running = self.running, name
        try:
            yield
        finally:
            self.running = outer_call

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Report calls inside the block; restore torch afterwards."""
        with _override_checks_ignore_modes(), self._custom_functions_as_one_call(), self:
            yield

    @contextmanager
    def _custom_functions_as_one_call(self) -> Iterator[None]:
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
    """The op's name, without the underscore of in-place variants, as in a trace."""
    name: str = getattr(func, "__name__", type(func).__name__)
    if name.startswith("__"):
        return name.strip("_")
    return name.rstrip("_")


def has_override(values: Iterable[Any]) -> bool:
    """Whether the class of one of `values` overrides torch's functions, and does not run torch's version right now."""
    return torch._C._is_torch_function_enabled() and any(
        getattr(type(value), "__torch_function__", _DISABLED) is not _DISABLED
        for value in values
        if type(value) is not Tensor
    )


@contextmanager
def _override_checks_ignore_modes() -> Iterator[None]:
    checks = {
        "has_torch_function": has_override,
        "has_torch_function_unary": lambda value: has_override((value,)),
        "has_torch_function_variadic": lambda *values: has_override(values),
    }
    originals = [
        (module, name, getattr(module, name))
        for module in _OVERRIDE_CHECKERS
        for name in checks
        if hasattr(module, name)
    ]
    for module, name, _ in originals:
        setattr(module, name, checks[name])
    try:
        yield
    finally:
        for module, name, original in originals:
            setattr(module, name, original)
