"""Checkpointing modules of a model for a while, as a question: what if their insides were computed again in backward?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from profiler_kit.errors import UsageError


@contextmanager
def checkpointed(model: nn.Module, paths: Sequence[str]) -> Iterator[None]:
    """While it lasts, the modules at `paths` keep their inputs alone for backward and run their forward again.

    Raises UsageError where there is no module at a path.
    """
    changed: list[tuple[nn.Module, object]] = []
    try:
        for path in paths:
            module = _module_at(model, path)
            changed.append((module, module.__dict__.get("forward")))
            module.forward = _recomputing(module.forward)
        yield
    finally:
        for module, own in reversed(changed):
            if own is None:
                del module.__dict__["forward"]
            else:
                module.__dict__["forward"] = own


def _module_at(model: nn.Module, path: str) -> nn.Module:
    try:
        return model.get_submodule(path)
    except AttributeError as error:
        names = [name for name, _ in model.named_children()]
        hint = f"name a module as in named_modules(), such as {', '.join(names[:5])}" if names else "the model has none"
        raise UsageError(f"no module {path!r} to checkpoint", hint=hint) from error


def _recomputing(forward: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(forward, MethodType):  # a method again, so that a copy of the module runs the copy's own weights
        plain = forward.__func__
        return MethodType(
            lambda module, *args, **kwargs: _again(MethodType(plain, module), args, kwargs), forward.__self__
        )
    return lambda *args, **kwargs: _again(forward, args, kwargs)


def _again(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)
