"""Runs ops on meta tensors without importing torch's symbolic shapes and sympy, a third of the time of importing torch."""

from __future__ import annotations

import functools
import importlib
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, Final

import torch
from torch.overrides import _pop_mode_temporarily
from torch.utils._mode_utils import no_dispatch

_SYMBOLIC_SHAPES: Final = "torch.fx.experimental.symbolic_shapes"
_SYMBOLS: Final = (torch.SymBool, torch.SymInt, torch.SymFloat)
_PLAIN: Final = (bool, int, float)
# What these return for a plain number: the number itself, or True. Which of them exist depends on the version of torch.
_SAME_VALUE: Final = (
    "expect_true", "guard_bool", "guard_int", "guard_float", "guard_scalar", "guard_or_false", "guard_or_true",
    "guard_size_oblivious", "guarding_hint_or_throw", "hint_int", "optimization_hint", "size_hint", "statically_known_true",
)  # fmt: skip
_TRUE: Final = ("has_guarding_hint", "has_hint", "is_concrete_bool", "is_concrete_int")


@contextmanager
def outside_of_modes() -> Iterator[None]:
    """Hide the ops of an import inside the block from the modes of the count.

    The import can use function modes of its own, as that of the compiler of torch 2.6 does, so these stay enabled.
    """
    with ExitStack() as stack:
        stack.enter_context(no_dispatch())
        for _ in range(torch._C._len_torch_function_stack()):
            stack.enter_context(_pop_mode_temporarily())
        stack.enter_context(torch._C._EnableTorchFunction())
        yield


def _function(name: str, real: Callable[[], Any]) -> Callable[..., Any]:
    def function(a: Any, *args: Any, **options: Any) -> Any:
        if type(a) in _PLAIN:
            return a if name in _SAME_VALUE else True
        return getattr(real(), name)(a, *args, **options)

    function.__name__ = name
    return function


class ModulePlaceholder(ModuleType):
    """Stands for a module that is not imported yet; imports it when an attribute is read that the placeholder lacks."""

    is_package = False

    def __getattr__(self, name: str) -> Any:
        # `inspect` reads __file__ of every module; `import a.b` reads __path__ of a package.
        if name.startswith("__") and not (name == "__path__" and self.is_package):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self._real(), name)

    def _real(self) -> Any:
        self.uninstall()
        with outside_of_modes():
            return importlib.import_module(self.__name__)

    def uninstall(self) -> None:
        """Remove the placeholder if it is still in place."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


class _SymbolicShapes(ModulePlaceholder):
    """Every ``torch._check`` of an op on meta tensors imports this module, and sympy with it, to learn that True is true."""

    def __init__(self) -> None:
        super().__init__(_SYMBOLIC_SHAPES)
        for name in _SAME_VALUE + _TRUE:
            setattr(self, name, _function(name, self._real))

    def sym_and(self, x: Any, *others: Any) -> Any:
        """Whether all are true; symbolic if one of them is."""
        return functools.reduce(operator.and_, others, x)

    def sym_or(self, x: Any, *others: Any) -> Any:
        """Whether one is true; symbolic if one of them is."""
        return functools.reduce(operator.or_, others, x)

    def sym_eq(self, x: Any, y: Any) -> Any:
        """Whether two sizes, or two lists of sizes, are equal; symbolic if one of them is."""
        if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
            return len(x) == len(y) and functools.reduce(operator.and_, map(self.sym_eq, x, y), True)
        return x == y if type(x) is int and type(y) is int else self._real().sym_eq(x, y)

    def is_nested_int(self, s: Any) -> Any:
        """Whether a size is the ragged one of a nested tensor."""
        return isinstance(s, _SYMBOLS) and self._real().is_nested_int(s)

    def free_unbacked_symbols(self, val: Any) -> Any:
        """The symbols in the sizes of a tensor that have no value."""
        plain = isinstance(val, torch.Tensor) and all(type(size) is int for size in val.shape)
        return set() if plain else self._real().free_unbacked_symbols(val)


class _IsExpression(type):
    def __instancecheck__(cls, value: Any) -> bool:
        module = sys.modules.get("sympy")
        return module is not None and not isinstance(module, _Sympy) and isinstance(value, module.Basic)


class _Sympy(ModulePlaceholder):
    """Type promotion of an op on meta tensors imports sympy to learn that an operand is no expression of it."""

    is_package = True

    class Basic(metaclass=_IsExpression):
        """The base class of expressions, for `isinstance`."""


def install_placeholders() -> tuple[ModulePlaceholder, ...]:
    """Put placeholders in the places of ``torch.fx.experimental.symbolic_shapes`` and sympy, where they are not imported yet."""
    placeholders = tuple(
        module for module in (_SymbolicShapes(), _Sympy("sympy")) if module.__name__ not in sys.modules
    )
    sys.modules.update({module.__name__: module for module in placeholders})
    return placeholders
