"""Models under torch.compile: finding compiled modules, and unwrapping them for counting."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from torch import nn

_ORIGINAL: Final = "_orig_mod"  # attribute of the original module in torch.compile(module); appears in module paths
_IN_PLACE: Final = "_compiled_call_impl"  # set by module.compile()
_DECORATED: Final = "_torchdynamo_orig_callable"  # set by @torch.compile on a function

Wrapper = Callable[[nn.Module], nn.Module]


def has_compiled() -> bool:
    """Whether this process has compiled anything by ``torch.compile``."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("frames"))


def uncompiled_path(path: str) -> str:
    """A path of ``named_modules()`` without the parts that torch.compile adds."""
    return ".".join(step for step in path.split(".") if step != _ORIGINAL) if _ORIGINAL in path else path


def unwrap_compiled(model: nn.Module) -> tuple[nn.Module, Wrapper | None]:
    """The module inside ``torch.compile(module)``, and a function that compiles a copy the same way; None if not compiled."""
    inner = getattr(model, _ORIGINAL, None)
    if not isinstance(inner, nn.Module):
        return model, None
    kind: Any = type(model)
    dynamo_context = getattr(model, "dynamo_ctx", None)
    return inner, lambda module: model if module is inner else kind(module, dynamo_context)


def compiled_parts(model: nn.Module) -> tuple[str, ...]:
    """Paths of the outermost compiled modules in `model`, ``""`` for `model` itself."""
    compiled_paths: list[str] = []
    for wrapped_path, module in model.named_modules():
        path = uncompiled_path(wrapped_path)
        is_inside = any(not outer or path == outer or path.startswith(f"{outer}.") for outer in compiled_paths)
        if not is_inside and _is_compiled(module):
            compiled_paths.append(path)
    return tuple(compiled_paths)


def remove_compilation(model: nn.Module) -> nn.Module:
    """Remove torch.compile from all modules of `model` in place, so that it runs op by op; returns the model."""
    model, _ = unwrap_compiled(model)
    for module in model.modules():
        if getattr(module, _IN_PLACE, None) is not None:
            setattr(module, _IN_PLACE, None)
        for name, child in list(module._modules.items()):
            if child is not None:
                module._modules[name] = unwrap_compiled(child)[0]
    return model


def _is_compiled(module: nn.Module) -> bool:
    if isinstance(getattr(module, _ORIGINAL, None), nn.Module) or getattr(module, _IN_PLACE, None) is not None:
        return True
    return hasattr(getattr(type(module), "forward", None), _DECORATED)
