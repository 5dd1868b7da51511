"""Stands for torch's module of symbolic shapes while all sizes are plain numbers: importing it also imports sympy."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, Final

import torch
from torch.utils._mode_utils import no_dispatch

SHAPES: Final = "torch.fx.experimental.symbolic_shapes"


class ShapesPlaceholder(ModuleType):
    """Stands for ``torch.fx.experimental.symbolic_shapes`` until it gets a symbolic size; then the module is imported.

    The checks of torch's meta kernels import the module, which takes about a quarter of the time of importing torch, only to
    call functions that return plain values as they are.
    """

    def __init__(self) -> None:
        super().__init__(SHAPES)

    def expect_true(self, a: Any, skip: int = 0) -> Any:
        """`a`, if it is plain."""
        return a if type(a) is bool else self._real().expect_true(a, skip + 1)

    def guard_or_false(self, a: Any) -> Any:
        """`a`, if it is plain."""
        return a if type(a) is bool else self._real().guard_or_false(a)

    def guard_or_true(self, a: Any) -> Any:
        """`a`, if it is plain."""
        return a if type(a) is bool else self._real().guard_or_true(a)

    def statically_known_true(self, x: Any) -> Any:
        """`x`, if it is plain."""
        return x if type(x) is bool else self._real().statically_known_true(x)

    def guard_int(self, a: Any) -> Any:
        """`a`, if it is plain."""
        return a if type(a) is int else self._real().guard_int(a)

    def is_nested_int(self, s: Any) -> Any:
        """Whether `s` is the size of a nested tensor: a plain number is not."""
        return False if type(s) in (int, float) else self._real().is_nested_int(s)

    def sym_and(self, x: Any, *others: Any) -> Any:
        """Whether all of the arguments hold."""
        values = (x, *others)
        return all(values) if all(type(v) is bool for v in values) else self._real().sym_and(*values)

    def sym_or(self, x: Any, *others: Any) -> Any:
        """Whether one of the arguments holds."""
        values = (x, *others)
        return any(values) if all(type(v) is bool for v in values) else self._real().sym_or(*values)

    def sym_eq(self, x: Any, y: Any) -> Any:
        """Whether two sizes, or two shapes, are equal."""
        if type(x) is int and type(y) is int:
            return x == y
        if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)) and all(type(v) is int for v in (*x, *y)):
            return list(x) == list(y)
        return self._real().sym_eq(x, y)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {SHAPES!r} has no attribute {name!r}")
        return getattr(self._real(), name)

    def _real(self) -> Any:
        if sys.modules.get(SHAPES) is not self:
            return importlib.import_module(SHAPES)
        self.uninstall()
        with no_dispatch(), torch._C.DisableTorchFunction():  # modes of the count must not see the ops of the import
            return importlib.import_module(SHAPES)

    def install(self) -> None:
        """Put the placeholder in the place of the module."""
        sys.modules[SHAPES] = self

    def uninstall(self) -> None:
        """Remove the placeholder, unless the module has taken its place."""
        if sys.modules.get(SHAPES) is self:
            del sys.modules[SHAPES]
