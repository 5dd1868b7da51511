"""Static facts of a model's modules: names, aliases, parameters, a short description, settings and state as plain text."""

from __future__ import annotations

import enum
import keyword
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

from profiler_kit.meta.packed_weights import packed_weights
from profiler_kit.records.counts import LayerSizes, ModuleNode
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


CONFIG_WIDTH = 60


def describe_modules(model: nn.Module, settings: Mapping[str, tuple[str, ...]] | None = None) -> tuple[ModuleNode, ...]:
    """Every module of `model` without its work, once each, in the order of ``named_modules()``.

    A shared parameter belongs to its first module. `params` and `param_bytes` include the packed weights of quantized layers,
    which are not trainable. `settings`: the settings by path before the model ran; modules that are missing there were lazy.
    """
    settings = {**settings_by_path(model), **(settings or {})}
    names: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(id(module), []).append(name)
    counted_ids: set[int] = set()
    facts = []
    for path, module in model.named_modules():
        candidates = [p for p in module._parameters.values() if p is not None and id(p) not in counted_ids]
        parameters = list({id(p): p for p in candidates}.values())
        counted_ids.update(id(p) for p in parameters)
        packed = {key: weights for key, weights in packed_weights(module) if key not in counted_ids}
        counted_ids.update(packed)
        facts.append(
            ModuleNode(
                path=path,
                aliases=tuple(name for name in names[id(module)] if name != path),
                class_name=type(module).__name__,
                config=config_text(module),
                sizes=layer_sizes(module),
                params=sum(p.numel() for p in parameters) + sum(weights.elements for weights in packed.values()),
                trainable_params=sum(p.numel() for p in parameters if p.requires_grad),
                param_bytes=sum(p.numel() * p.element_size() for p in parameters)
                + sum(weights.nbytes for weights in packed.values()),
                settings=settings.get(path, ()),
                state=state_keys(module),
            )
        )
    return tuple(facts)


def paths_of_torch(model: nn.Module) -> frozenset[str]:
    """The paths of the modules of `model` whose code is part of torch."""
    return frozenset(path for path, module in model.named_modules() if type(module).__module__.startswith("torch.nn."))


def layer_sizes(module: nn.Module) -> LayerSizes | None:
    """The sizes of a convolution, a linear or a recurrent layer; None for other modules."""
    if isinstance(module, nn.modules.conv._ConvNd):
        return LayerSizes(
            inputs=module.in_channels,
            outputs=module.out_channels,
            kernel=tuple(module.kernel_size),
            groups=module.groups,
            is_strided=any(step != 1 for step in module.stride),
        )
    if isinstance(module, nn.Linear):
        return LayerSizes(inputs=module.in_features, outputs=module.out_features)
    if isinstance(module, nn.RNNBase):
        return LayerSizes(inputs=module.input_size, outputs=module.hidden_size)
    return None


def config_text(module: nn.Module) -> str:
    """A short description of `module`'s settings: ``3->64, k3, s2, g4``; "" if it has none."""
    if isinstance(module, nn.modules.conv._ConvNd):
        return _convolution_text(module)
    if isinstance(module, nn.Linear):
        return f"{module.in_features}->{module.out_features}" + ("" if module.bias is not None else ", no bias")
    if isinstance(module, nn.Embedding):
        return f"{module.num_embeddings} x {module.embedding_dim}"
    if isinstance(module, nn.RNNBase):
        return _recurrent_text(module)
    if isinstance(module, nn.MultiheadAttention):
        return f"{module.embed_dim}, {module.num_heads} heads"
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return str(module.num_features)
    if isinstance(module, nn.LayerNorm):
        return " x ".join(str(size) for size in module.normalized_shape)
    try:
        text = " ".join(module.extra_repr().split())
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return ""  # extra_repr is user code; a description is optional
    return text if len(text) <= CONFIG_WIDTH else text[: CONFIG_WIDTH - 3] + "..."


def _size(values: Sequence[int] | str) -> str:
    if isinstance(values, str):
        return values
    return str(values[0]) if len(set(values)) == 1 else "x".join(str(value) for value in values)


def _convolution_text(conv: nn.modules.conv._ConvNd) -> str:
    parts = [f"{conv.in_channels}->{conv.out_channels}", f"k{_size(conv.kernel_size)}"]
    if any(step != 1 for step in conv.stride):
        parts.append(f"s{_size(conv.stride)}")
    if isinstance(conv.padding, str) or any(conv.padding):
        parts.append(f"p{_size(conv.padding)}" if not isinstance(conv.padding, str) else f"p={conv.padding}")
    if any(step != 1 for step in conv.dilation):
        parts.append(f"d{_size(conv.dilation)}")
    if conv.groups != 1:
        parts.append(f"g{conv.groups}")
    if conv.bias is None:
        parts.append("no bias")
    return ", ".join(parts)


def _recurrent_text(rnn: nn.RNNBase) -> str:
    parts = [f"{rnn.input_size}->{rnn.hidden_size}"]
    if rnn.num_layers != 1:
        parts.append(f"{rnn.num_layers} layers")
    if rnn.bidirectional:
        parts.append("bidirectional")
    return ", ".join(parts)
