"""What torch.compile has wrapped: found, taken off for counting, kept for measuring."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn

_ORIGINAL: Final = "_orig_mod"  # where torch.compile(module) keeps the module, and a step of every path through it
_IN_PLACE: Final = "_compiled_call_impl"  # what module.compile() sets
_DECORATED: Final = "_torchdynamo_orig_callable"  # what @torch.compile leaves on a function

COMPILED_NOTE: Final = "torch.compile: "  # how the note of a target begins that holds something compiled

Wrapper = Callable[[nn.Module], nn.Module]


def plain_path(path: str) -> str:
    """`path` in ``named_modules()`` as it is without torch.compile."""
    return ".".join(step for step in path.split(".") if step != _ORIGINAL) if _ORIGINAL in path else path


def unwrapped(model: nn.Module) -> tuple[nn.Module, Wrapper | None]:
    """The module that ``torch.compile(module)`` was given, and what compiles one like it the same way; None if not compiled."""
    inner = getattr(model, _ORIGINAL, None)
    if not isinstance(inner, nn.Module):
        return model, None
    kind: Any = type(model)
    how = getattr(model, "dynamo_ctx", None)
    return inner, lambda module: model if module is inner else kind(module, how)


def compiled_parts(model: nn.Module) -> tuple[str, ...]:
    """Paths of the outermost modules in `model` that are compiled, in whatever way; ``""`` for `model` itself."""
    found: list[str] = []
    for path, module in model.named_modules():
        here = plain_path(path)
        inside = any(not one or here == one or here.startswith(f"{one}.") for one in found)
        if not inside and _is_compiled(module):
            found.append(here)
    return tuple(found)


def as_written(model: nn.Module) -> nn.Module:
    """`model` with nothing compiled in it, changed in place: what is counted runs op by op."""
    model, _ = unwrapped(model)
    for module in model.modules():
        if getattr(module, _IN_PLACE, None) is not None:
            setattr(module, _IN_PLACE, None)
        for name, child in list(module._modules.items()):
            if child is not None:
                module._modules[name] = unwrapped(child)[0]
    return model


@contextmanager
def nothing_compiled() -> Iterator[None]:
    """While it lasts, functions under ``@torch.compile`` run as they are written too."""
    if "torch._dynamo" not in sys.modules:  # nothing has been compiled, and importing it takes longer than counting
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _is_compiled(module: nn.Module) -> bool:
    if isinstance(getattr(module, _ORIGINAL, None), nn.Module) or getattr(module, _IN_PLACE, None) is not None:
        return True
    return hasattr(getattr(type(module), "forward", None), _DECORATED)
