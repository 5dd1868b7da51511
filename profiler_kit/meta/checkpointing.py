"""Temporary activation checkpointing of a model's modules, for what-if predictions."""

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
    """Checkpoint the modules at `paths` inside the block: only their inputs are saved, and backward recomputes their forward.

    Raises:
        UsageError: a path does not belong to a module.
    """
    changed: list[tuple[nn.Module, object]] = []
    try:
        for path in paths:
            module = _module_at(model, path)
            changed.append((module, module.__dict__.get("forward")))
            module.forward = _checkpointed_forward(module.forward)
        yield
    finally:
        for module, instance_forward in reversed(changed):
            if instance_forward is None:
                del module.__dict__["forward"]
            else:
                module.__dict__["forward"] = instance_forward


def _module_at(model: nn.Module, path: str) -> nn.Module:
    try:
        return model.get_submodule(path)
    except AttributeError as error:
        names = [name for name, _ in model.named_children()]
        hint = (
            f"use a path of named_modules(), for example {', '.join(names[:5])}"
            if names
            else "the model has no submodules"
        )
        raise UsageError(f"no module {path!r} to checkpoint", hint=hint) from error


def _checkpointed_forward(forward: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(forward, MethodType):  # keep a method, so that a copy of the module uses the weights of the copy
        plain = forward.__func__
        return MethodType(
            lambda module, *args, **kwargs: _call_checkpointed(MethodType(plain, module), args, kwargs),
            forward.__self__,
        )
    return lambda *args, **kwargs: _call_checkpointed(forward, args, kwargs)


def _call_checkpointed(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)
