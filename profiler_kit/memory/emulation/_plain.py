"""Replacing functions in modules for a while, and keeping torch's Python functions from stepping aside for a mode."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

_NO_OVERRIDE: Final = torch._C._disabled_torch_function_impl
_PLAIN: Final = getattr(Tensor.__torch_function__, "__func__", None)


@contextmanager
def replaced(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """While it lasts, each ``(owner, name, value)`` of `changes` is so; then all are as before."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)


def wherever_imported(function: Any, name: str, value: Any) -> list[tuple[Any, str, Any]]:
    """The changes that put `value` in place of `function` in every module of torch that holds it as `name`."""
    holders = _holders(name, len(sys.modules))
    return [(module, name, value) for module in holders if module.__dict__.get(name) is function]


@lru_cache(maxsize=32)
def _holders(name: str, loaded: int) -> tuple[Any, ...]:
    """The modules of torch with something called `name`; going through all takes a millisecond, `loaded` tells when to."""
    return tuple(
        module
        for key, module in list(sys.modules.items())
        if module is not None and key.partition(".")[0] == "torch" and key != "torch._C" and name in module.__dict__
    )


def _overrides(value: Any) -> bool:
    """Whether `value` is of a class with a ``__torch_function__`` of its own."""
    kind = type(value)
    if kind is Tensor or kind is torch.nn.Parameter:
        return False
    own = getattr(kind, "__torch_function__", None)
    return own is not None and own is not _NO_OVERRIDE and getattr(own, "__func__", own) is not _PLAIN


@contextmanager
def plain_functions() -> Iterator[None]:
    """While it lasts, ``F.dropout`` and its like run their Python bodies although a function mode is active.

    A function written in Python hands itself over to the mode whole, and what it calls in turn is not seen any more; so
    the question whether to do that is answered for tensor subclasses alone.
    """
    answers: dict[str, Callable[..., bool]] = {
        "has_torch_function": lambda values: any(map(_overrides, values)),
        "has_torch_function_unary": _overrides,
        "has_torch_function_variadic": lambda *values: any(map(_overrides, values)),
    }
    changes = [
        change
        for name, answer in answers.items()
        for change in wherever_imported(getattr(torch._C, f"_{name}", None), name, answer)
    ]
    with replaced(changes):
        yield
