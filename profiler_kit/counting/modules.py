"""Static facts of a model's modules: names, aliases, parameters, a short description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from profiler_kit.counting.settings import settings_by_path, state_keys
from profiler_kit.meta.packed_weights import packed_weights
from profiler_kit.records.counts import LayerSizes

CONFIG_WIDTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    """A module's names, class, description and parameters. A shared parameter belongs to its first module.

    `params` and `param_bytes` include the packed weights of quantized layers, which are not trainable.
    `settings`, `state`, `sizes`: as in `ModuleNode`. `is_from_torch`: its code is part of torch.
    """

    path: str
    aliases: tuple[str, ...]
    class_name: str
    config: str
    params: int
    trainable_params: int
    param_bytes: int
    settings: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    sizes: LayerSizes | None = None
    is_from_torch: bool = False


def describe_modules(
    model: nn.Module, settings: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[ModuleFacts, ...]:
    """Facts of every module of `model`, once each, in the order of ``named_modules()``.

    `settings`: the settings by path before the model ran; modules that are missing there were lazy.
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
            ModuleFacts(
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
                is_from_torch=type(module).__module__.startswith("torch.nn."),
            )
        )
    return tuple(facts)


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
