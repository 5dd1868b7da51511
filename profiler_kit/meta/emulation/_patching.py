"""Temporary replacement of functions in modules, and of torch's checks for overrides."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from profiler_kit.foreign import attributes_of, loaded_modules

_NO_OVERRIDE: Final = torch._C._disabled_torch_function_impl
_TENSOR_DEFAULT: Final = getattr(Tensor.__torch_function__, "__func__", None)


@contextmanager
def patched(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Inside the block, set every ``(owner, name, value)`` of `changes`; restore the original values afterwards."""
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(originals):
            setattr(owner, name, value)


def changes_in_torch(function: Any, name: str, value: Any) -> list[tuple[Any, str, Any]]:
    """Changes that replace `function` by `value` in every torch module that has it under `name`."""
    holders = _holders(name, len(sys.modules))
    return [(module, name, value) for module in holders if module.__dict__.get(name) is function]


@lru_cache(maxsize=32)
def _holders(name: str, loaded: int) -> tuple[Any, ...]:
    """The torch modules with an attribute `name`. The search takes 1 ms; `loaded`, the number of modules, keys the cache."""
    return tuple(
        module
        for key, module in loaded_modules()
        if key.partition(".")[0] == "torch" and key != "torch._C" and name in (attributes_of(module) or ())
    )


def _overrides(value: Any) -> bool:
    """Whether the class of `value` has its own ``__torch_function__``, and this class does not run torch's version right now."""
    kind = type(value)
    if kind is Tensor or kind is torch.nn.Parameter:
        return False
    override = getattr(kind, "__torch_function__", None)
    if override is None or override is _NO_OVERRIDE:
        return False
    return getattr(override, "__func__", override) is not _TENSOR_DEFAULT and torch._C._is_torch_function_enabled()


@contextmanager
def override_checks_ignore_modes() -> Iterator[None]:
    """Inside the block, functions such as ``F.dropout`` run their Python code although a function mode is active.

    A Python function would pass itself to the mode, and its inner calls would be hidden. Inside the block the override
    checks consider tensor subclasses only.
    """
    checks: dict[str, Callable[..., bool]] = {
        "has_torch_function": lambda values: any(map(_overrides, values)),
        "has_torch_function_unary": _overrides,
        "has_torch_function_variadic": lambda *values: any(map(_overrides, values)),
    }
    changes = [
        change
        for name, check in checks.items()
        for change in changes_in_torch(getattr(torch._C, f"_{name}", None), name, check)
    ]
    with patched(changes):
        yield
