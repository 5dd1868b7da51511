"""Runs torch without its compiler: compiled functions run uncompiled, and the compiler is not imported for nothing."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType
from typing import Any, Final
from weakref import WeakSet

import torch

from profiler_kit.meta.module_placeholders import ModulePlaceholder, install_placeholders, outside_of_modes

_DYNAMO: Final = "torch._dynamo"
_UTILITIES: Final = "torch._dynamo.utils"
_UNCOMPILED: Final = "force_eager"  # the stance in which compiled functions run their original code
_COMPILED: Final = "default"
_CACHE: Final = "__dynamo_disable"  # where torch caches the result of `disable` on a function

_active: list[DynamoPlaceholder] = []  # at most one: the placeholder that is installed now


class _UtilitiesPlaceholder(ModulePlaceholder):
    """Stands for ``torch._dynamo.utils``, of which libraries import `is_compile_supported`, and call it much later, if ever."""

    def __init__(self) -> None:
        super().__init__(_UTILITIES)

    def is_compile_supported(self, device_type: Any) -> Any:
        """Whether the compiler supports a device."""
        return self._real().is_compile_supported(device_type)

    def _real(self) -> Any:
        compiler = sys.modules.get(_DYNAMO)
        if isinstance(compiler, DynamoPlaceholder):
            compiler._real()
        return importlib.import_module(_UTILITIES)


class DynamoPlaceholder(ModulePlaceholder):
    """Stands for ``torch._dynamo`` until an attribute is read that only the compiler has; then it is imported.

    Every optimizer step and every checkpointed call imports torch._dynamo, which takes about as long as importing torch, only
    to call `graph_break` and `disable`. Outside of a compiled region these do nothing.
    """

    is_package = True

    def __init__(self) -> None:
        super().__init__(_DYNAMO)
        self._functions: WeakSet[FunctionType] = WeakSet()
        self._stance = ExitStack()
        self._dependencies: tuple[ModulePlaceholder, ...] = ()

    def graph_break(self, *args: Any, **options: Any) -> Any:
        """Do nothing, as outside of a compiled region."""
        return None if self in _active else self._real().graph_break(*args, **options)

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        """`fn`, which nothing compiles while this placeholder is installed."""
        if not isinstance(fn, FunctionType) or self not in _active:
            return self._real().disable(fn, recursive, **options)
        self._functions.add(fn)
        return fn

    def _real(self) -> Any:
        if sys.modules.get(_DYNAMO) is self:
            self._remove_from_modules()
            with outside_of_modes(), _no_new_folders():
                module = importlib.import_module(_DYNAMO)
                self._stance.enter_context(_uncompiled())
            return module
        return importlib.import_module(_DYNAMO)

    def install(self) -> None:
        """Put the placeholder in the place of ``torch._dynamo``."""
        sys.modules[_DYNAMO] = self
        sys.modules[_UTILITIES] = _UtilitiesPlaceholder()
        self._dependencies = install_placeholders()
        torch._dynamo = self
        _active.append(self)

    def uninstall(self) -> None:
        """Remove the placeholder and what torch cached from it; if the compiler was imported, restore its stance."""
        _active.remove(self)
        if sys.modules.get(_DYNAMO) is self:
            self._remove_from_modules()
        for function in self._functions:
            vars(function).pop(_CACHE, None)
        self._stance.close()

    def _remove_from_modules(self) -> None:
        for placeholder in self._dependencies:  # the compiler copies names of these modules when it is imported
            placeholder.uninstall()
        del sys.modules[_DYNAMO]
        if isinstance(sys.modules.get(_UTILITIES), _UtilitiesPlaceholder):
            del sys.modules[_UTILITIES]
        if vars(torch).get("_dynamo") is self:
            del torch._dynamo


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Run compiled functions uncompiled inside the block, and let ``torch.export`` trace.

    Up to torch 2.6 it traces with the compiler unless told otherwise, and finds no graph where compiled functions run uncompiled.
    """
    original = torch._dynamo.export

    def export(*args: Any, **options: Any) -> Any:
        with torch.compiler.set_stance(_COMPILED):
            traced = original(*args, **options)
        return torch.compiler.set_stance(_COMPILED)(traced) if isinstance(traced, FunctionType) else traced

    torch._dynamo.export = export
    try:
        with torch.compiler.set_stance(_UNCOMPILED):
            yield
    finally:
        torch._dynamo.export = original


@contextmanager
def _no_new_folders() -> Iterator[None]:
    """Create no folders inside the block: the import of the compiler creates its cache, which every use creates again."""
    original = os.makedirs
    os.makedirs = lambda *args, **options: None
    try:
        yield
    finally:
        os.makedirs = original


@contextmanager
def compilation_disabled() -> Iterator[None]:
    """Run functions under ``torch.compile`` uncompiled inside the block, also those that are compiled inside the block."""
    if _active:
        yield
    elif _DYNAMO in sys.modules:
        with _uncompiled():
            yield
    else:
        placeholder = DynamoPlaceholder()
        placeholder.install()
        try:
            yield
        finally:
            placeholder.uninstall()
