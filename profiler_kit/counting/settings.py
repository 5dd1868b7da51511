"""The settings and the state of modules as plain text, so that two versions of a model can be compared without either."""

from __future__ import annotations

import enum
import keyword
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

from profiler_kit.units import shape_text
from profiler_kit.user_code.reachable import object_attributes

# Longer sequences are data (anchors, indices), not settings.
MAX_ITEMS: Final = 16
MAX_SETTINGS: Final = 100  # of one module: an object with more is a store of data
# Words and names, no paths and no sentences: a path differs between two checkouts of the same code.
_WORD: Final = re.compile(r"[A-Za-z_][\w.+-]{0,39}( [\w.+-]{1,20}){0,2}\Z", re.ASCII)
_CONFIGS: Final = (
    "config",
    "cfg",
    "args",
    "hparams",
    "conf",
    "opt",
)  # usual attributes of a root that hold its arguments
_FLAGS_OF_TORCH: Final = frozenset({"training", "call_super_init", "dump_patches"})


def settings_by_path(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """The settings of every module of `model` that has some, as ``name=value``. Call it before the model runs.

    Counts: public attributes of the instance with plain values (numbers, flags, words, types, functions, short sequences of
    these), and for the root the same of its ``config``. A forward pass may store shapes in attributes, which are no settings.
    Lazy modules have their settings only after they ran.
    """
    settings = {
        path: tuple(_settings(vars(module)))
        for path, module in model.named_modules()
        if not isinstance(module, LazyModuleMixin)
    }
    return {path: values for path, values in settings.items() if values}


def _settings(attributes: Mapping[str, Any], prefix: str = "") -> list[str]:
    values = []
    for name, value in attributes.items():
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            continue
        if name.startswith("_") or name.endswith("version") or name in _FLAGS_OF_TORCH:
            continue
        text = _plain(value)
        if text is not None:
            values.append(f"{prefix}{name}={text}")
        elif not prefix and name in _CONFIGS and not isinstance(value, (nn.Module, torch.Tensor)):
            values += _settings(_attributes(value), f"{name}.")
    return values[:MAX_SETTINGS]


def _attributes(value: Any) -> Mapping[str, Any]:
    """The attributes of a configuration object, without calling its code."""
    return value if type(value) is dict else object_attributes(value)


def _plain(value: Any) -> str | None:
    """`value` as text if it is plain; else None."""
    if type(value) in (bool, int):
        return repr(value)
    if type(value) is float:
        return f"{value:.6g}"
    if type(value) is str:
        return value if _WORD.match(value) else None
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
        return value.__name__ if value.__name__.isidentifier() else None
    if type(value) in (tuple, list, torch.Size) and len(value) <= MAX_ITEMS:
        items = [_plain(item) for item in value]
        return f"({', '.join(str(item) for item in items)})" if None not in items else None
    return None


def state_keys(module: nn.Module) -> tuple[str, ...]:
    """The keys of `module` itself in ``state_dict()`` with their shapes: ``weight 64x3x7x7``, ``num_batches_tracked scalar``.

    Counts: parameters, persistent buffers and extra state. Keys that hooks and overridden methods add are not included.
    """
    return tuple(_state_keys(module))


def _state_keys(module: nn.Module) -> Iterator[str]:
    skipped = module._non_persistent_buffers_set
    tensors = [*module._parameters.items(), *(item for item in module._buffers.items() if item[0] not in skipped)]
    for name, tensor in tensors:
        if tensor is not None:
            yield f"{name} {'unknown' if is_lazy(tensor) else shape_text(tensor.shape)}"
    if type(module).get_extra_state is not nn.Module.get_extra_state:
        yield "_extra_state object"
