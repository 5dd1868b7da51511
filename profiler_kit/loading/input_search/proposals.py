"""The inputs to begin a search with: what layers take, and what parameters of each role usually receive."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.modules.batchnorm import _NormBase as NormBase

from profiler_kit.loading.data_path.values import Array
from profiler_kit.loading.input_search.facts import CLIP_FRAMES, CLIP_SIZE, IMAGE_CHANNELS, SIGNAL_LENGTH, Facts
from profiler_kit.loading.input_search.recorder import META
from profiler_kit.loading.input_search.roles import Parameter, role_of
from profiler_kit.loading.inputs import InputText, text_of
from profiler_kit.loading.vocabulary import Role, is_concept, says
from profiler_kit.meta.batch import tensors_in

Value = tuple[InputText, ...]  # the texts of one parameter: one, or one for each item of a list or dict

DIFFUSION_STEPS: Final = 1000  # of the noise schedules that denoising networks are trained with
NODES: Final = 100
EDGES: Final = 400
MASKS: Final = frozenset({Role.MASK, Role.PADDING_MASK, Role.ATTENTION_MASK})
POINTS: Final = 1024  # per shape in the data sets of PointNet
MAX_POINT_FEATURES: Final = 9  # coordinates, normals or colors, and coordinates in the room
ATTENTION_HEADS: Final = 8  # of the transformer's paper: 8 heads of width 64
HEAD_WIDTH: Final = 64
GENERIC_WIDTHS: Final = (100, 10)
# Names of methods that create the first state of a recurrent network, in PyTorch's examples and tutorials
INITIAL_STATES: Final = ("init_hidden", "initHidden", "init_state", "initial_state", "begin_state", "init_hidden_state")


def layer_inputs(layer: nn.Module, facts: Facts, *, name: str, batch: int = 1) -> Iterator[InputText]:
    """The inputs that `layer` takes as the first layer of a model, the most usual first; none for an unknown layer."""
    match layer:
        case nn.ConvTranspose2d():  # the first layer of a generator enlarges a 1x1 map
            yield InputText(name=name, shape=(batch, layer.in_channels, 1, 1))
            yield InputText(name=name, shape=(batch, layer.in_channels, *facts.image_size(layer.in_channels)))
        case nn.ConvTranspose1d():
            yield InputText(name=name, shape=(batch, layer.in_channels, 1))
            yield InputText(name=name, shape=(batch, layer.in_channels, SIGNAL_LENGTH))
        case nn.ConvTranspose3d():
            yield InputText(name=name, shape=(batch, layer.in_channels, 1, 1, 1))
        case nn.Conv2d():
            yield InputText(name=name, shape=(batch, layer.in_channels, *facts.image_size(layer.in_channels)))
        case nn.Conv1d():
            yield InputText(name=name, shape=(batch, layer.in_channels, facts.length or SIGNAL_LENGTH))
        case nn.Conv3d():
            size = facts.image if facts.image is not None else (CLIP_SIZE, CLIP_SIZE)
            yield InputText(name=name, shape=(batch, layer.in_channels, facts.frames or CLIP_FRAMES, *size))
        case nn.Linear():
            shapes = [(batch, layer.in_features), (batch, facts.sequence_length, layer.in_features)]
            yield from (InputText(name=name, shape=shape) for shape in shapes[:: -1 if facts.is_time_series else 1])
        case nn.Bilinear():
            yield InputText(name=name, shape=(batch, layer.in1_features))
        case nn.Embedding() | nn.EmbeddingBag():
            yield tokens(name, facts, rows=layer.num_embeddings, batch=batch)
        case nn.RNNBase():
            yield InputText(name=name, shape=(*_sequence(layer.batch_first, facts, batch), layer.input_size))
        case nn.RNNCellBase():
            yield InputText(name=name, shape=(batch, layer.input_size))
        case nn.MultiheadAttention():
            yield InputText(name=name, shape=(*_sequence(layer.batch_first, facts, batch), layer.embed_dim))
        case nn.LayerNorm() | nn.RMSNorm():
            if len(layer.normalized_shape) == 1:
                yield InputText(name=name, shape=(batch, facts.sequence_length, *layer.normalized_shape))
            yield InputText(name=name, shape=(batch, *layer.normalized_shape))
        case nn.BatchNorm1d():
            yield InputText(name=name, shape=(max(batch, 2), layer.num_features))
            yield InputText(name=name, shape=(max(batch, 2), layer.num_features, SIGNAL_LENGTH))
        case _ if isinstance(getattr(layer, "pattern", None), str):
            yield from _pattern_inputs(layer.pattern, facts, name=name, batch=batch)
        case BatchNorm() | NormBase() | nn.GroupNorm():
            channels = layer.num_channels if isinstance(layer, nn.GroupNorm) else layer.num_features
            spatial = (
                (CLIP_FRAMES, CLIP_SIZE, CLIP_SIZE) if "3d" in type(layer).__name__ else facts.image_size(channels)
            )
            yield InputText(name=name, shape=(batch, channels, *spatial))


def _pattern_inputs(pattern: object, facts: Facts, *, name: str, batch: int) -> Iterator[InputText]:
    """The input of an einops layer: ``b c (h p1) (w p2) -> b (h w) (p1 p2 c)`` takes four dimensions."""
    rank = pattern_rank(str(pattern))
    channels = facts.channels or IMAGE_CHANNELS
    size = facts.image_size(channels)
    shapes = {3: (batch, channels, facts.length or SIGNAL_LENGTH), 4: (batch, channels, *size)}
    shapes[5] = (batch, channels, facts.frames or CLIP_FRAMES, *size)
    if rank in shapes:
        yield InputText(name=name, shape=shapes[rank])


def pattern_rank(pattern: str) -> int:
    """The number of dimensions on the left side of an einops pattern."""
    return len(re.sub(r"\([^)]*\)", "x", pattern.partition("->")[0]).split())


def _sequence(batch_first: bool, facts: Facts, batch: int) -> tuple[int, int]:
    return (batch, facts.sequence_length) if batch_first else (facts.sequence_length, batch)


def tokens(name: str, facts: Facts, *, rows: int | None = None, batch: int = 1) -> InputText:
    """Integer ids of one sequence, within the rows of the embedding."""
    high = rows or facts.rows or 2  # a table of an empty vocabulary has no rows
    return InputText(name=name, shape=(batch, facts.sequence_length), dtype="int64", low=0, high=high)


def data_inputs(name: str, facts: Facts, batch: int = 1) -> list[InputText]:
    """The inputs of a parameter without a special role: those of each kind of layer, in order of definition."""
    texts: dict[InputText, None] = {}
    if facts.is_time_series:
        texts[InputText(name=name, shape=(batch, facts.sequence_length, facts.features or 1))] = None
    kinds: set[type[nn.Module]] = set()
    for _, layer in facts.layers:
        if type(layer) not in kinds:
            kinds.add(type(layer))
            texts.update(dict.fromkeys(layer_inputs(layer, facts, name=name, batch=batch)))
    texts[InputText(name=name, shape=(batch, facts.channels or 3, *facts.image_size(facts.channels)))] = None
    for width in (facts.latent, *GENERIC_WIDTHS):
        if width is not None:
            texts[InputText(name=name, shape=(batch, width))] = None
    texts[tokens(name, facts, batch=batch)] = None
    return list(texts)


def proposals(
    parameter: Parameter, parameters: tuple[Parameter, ...], facts: Facts, model: nn.Module, batch: int = 1
) -> list[Value]:
    """The values to try for `parameter` of `parameters`, the most usual first."""
    name, role = parameter.name, parameter.role
    roles = {other.role for other in parameters}
    if parameter.texts:
        return [(InputText(name=name, shape=(), literal=repr(text)),) for text in parameter.texts]
    if role is Role.DICT and parameter.keys:
        members = tuple(Parameter(name=key, role=role_of(key)) for key in parameter.keys if key.isidentifier())
        parts = [proposals(member, members, facts, model, batch)[0][0] for member in members]
        return [tuple(replace(part, name=f"{name}.{member.name}") for part, member in zip(parts, members, strict=True))]
    by_item = _items(parameter, facts, model, batch) if role in (Role.LIST, Role.DATA, Role.TOKENS) else []
    if role is Role.LIST:
        counts = dict.fromkeys((len(parameter.items) or 2, 1, 3, 4))
        return by_item + [as_list(text, count) for text in data_inputs(name, facts, batch)[:4] for count in counts]
    if role is Role.STATE:
        is_only = sum(other.role is Role.STATE for other in parameters) == 1
        states = _states(name, facts, model, batch, in_pairs=is_only)
        return [*states, *((text,) for text in data_inputs(name, facts, batch))]
    texts = _single(name, role, facts, batch)
    if role is Role.DATA and roles & {Role.ADJACENCY, Role.EDGES}:  # one row of features per node
        widths = [text.shape[-1] for text in texts if len(text.shape) == 2 and not text.is_whole]
        texts = [InputText(name=name, shape=(NODES, width)) for width in dict.fromkeys(widths)] + texts
    elif role is Role.DATA and roles & MASKS and facts.first(nn.Conv2d, nn.Conv3d) is None:  # masks are for sequences
        texts.sort(key=lambda text: len(text.shape) != 3)
    elif role is Role.DATA and says(name, "image"):
        texts.sort(key=lambda text: len(text.shape) not in (4, 5))
    elif role in (Role.DATA, Role.NOISE) and len(parameters) > 1 and roles & {Role.CLASS, Role.TOKENS, Role.NOISE}:
        texts.sort(key=lambda text: text.is_whole)  # the embedding is for the other parameter
    if role in (Role.TOKENS, Role.DATA) and facts.is_sequence_first and roles & {Role.STATE, Role.ATTENTION_MASK}:
        texts = [replace(text, shape=text.shape[::-1]) if text.is_integer else text for text in texts]
    return [*by_item, *((text,) for text in texts)]


def _items(parameter: Parameter, facts: Facts, model: nn.Module, batch: int) -> list[Value]:
    """A list with an item for each name that forward unpacks the parameter into, if their names say different things."""
    members = tuple(Parameter(name=item, role=role_of(item)) for item in parameter.items)
    if len({member.role for member in members}) < 2 or Role.STATE in {member.role for member in members}:
        return []
    length = InputText(
        name="", shape=(batch,), dtype="int64", low=facts.sequence_length, high=facts.sequence_length + 1
    )
    parts = [proposals(member, members, facts, model, batch)[0][0] for member in members]
    parts = [part if part.literal is None else length for part in parts]  # an item is a tensor
    return [tuple(replace(part, name=f"{parameter.name}[{index}]") for index, part in enumerate(parts))]


def with_known_sizes(name: str, values: list[Value], known: Array, facts: Facts) -> list[Value]:
    """The values with as many dimensions as `known`, in its sizes where these are known; first one that it states alone."""
    sizes = known.sizes
    if sizes is None:
        return []
    is_whole = known.dtype in ("int64", "int32")
    bounds: dict[str, Any] = {"dtype": "int64", "low": 0, "high": facts.rows or 2} if is_whole else {}
    texts = [value[0] for value in values if len(value) == 1 and value[0].literal is None]
    same = [text for text in texts if len(text.shape) == len(sizes) and (text.is_whole or not is_whole)]
    stated = InputText(name=name, shape=tuple(size or 1 for size in sizes), **bounds)
    if known.dtype in ("bool", "float64"):
        stated = replace(stated, dtype=known.dtype)
    if None not in sizes[1:]:
        same.insert(0, stated)
    elif not same and is_whole:
        same = [replace(stated, shape=tuple(size or facts.sequence_length for size in sizes))]
    merged = (
        replace(text, shape=tuple(b if b is not None else a for a, b in zip(text.shape, sizes, strict=True)))
        for text in same
    )
    return [(text,) for text in dict.fromkeys(merged)]


def as_list(text: InputText, count: int) -> Value:
    """A list of `count` tensors like `text`."""
    return tuple(replace(text, name=f"{text.parameter}[{index}]") for index in range(count))


def _single(name: str, role: Role, facts: Facts, batch: int) -> list[InputText]:
    length = facts.sequence_length
    data = data_inputs(name, facts, batch)
    ids = InputText(name=name, shape=(batch,), dtype="int64", low=0, high=facts.rows or 2)
    none = InputText(name=name, shape=(), literal="None")
    match role:
        case Role.ATTENTION:
            linear = facts.first(nn.Linear)
            per_head = InputText(name=name, shape=(batch, ATTENTION_HEADS, length, HEAD_WIDTH))
            if linear is None:
                return [per_head, replace(per_head, shape=(batch, length, HEAD_WIDTH)), *data]
            return [InputText(name=name, shape=(batch, length, linear.in_features)), *data, per_head]
        case Role.TOKENS:
            return [tokens(name, facts, batch=batch), ids, *data] if facts.rows is not None else data
        case Role.POSITIONS:
            positions = InputText(name=name, shape=(batch, length), dtype="int64", low=0, high=length)
            return [positions, replace(positions, shape=(length,)), *data]
        case Role.PADDING_MASK | Role.ATTENTION_MASK | Role.MASK:
            return _masks(name, role, facts, batch)
        case Role.LENGTHS:
            lengths = InputText(name=name, shape=(batch,), dtype="int64", low=length, high=length + 1)
            return [lengths, InputText(name=name, shape=(), literal=str([length] * batch)), *data]
        case Role.TIME:
            step = InputText(name=name, shape=(batch,), dtype="int64", low=0, high=DIFFUSION_STEPS)
            return [step, InputText(name=name, shape=(batch, 1)), InputText(name=name, shape=(batch,)), *data]
        case Role.NOISE:
            latent = [InputText(name=name, shape=(batch, facts.latent))] if facts.latent is not None else []
            first = [text for text in data if facts.latent in text.shape] if latent else []
            return list(dict.fromkeys([*first, *latent, *data]))
        case Role.CLASS:
            return [ids, tokens(name, facts, batch=batch), *data] if facts.rows is not None else [*data, ids]
        case Role.POINTS:
            first = facts.first(nn.Conv1d, nn.Linear)
            width = getattr(first, "in_channels", getattr(first, "in_features", 0))
            widths = dict.fromkeys((width if 3 <= width <= MAX_POINT_FEATURES else 3, 3, 6))
            clouds = [(batch, *shape) for size in widths for shape in ((size, POINTS), (POINTS, size))]
            return [*(InputText(name=name, shape=shape) for shape in clouds), *data]
        case Role.ADJACENCY:
            return [InputText(name=name, shape=(NODES, NODES)), InputText(name=name, shape=(batch, NODES, NODES))]
        case Role.EDGES:
            return [InputText(name=name, shape=(2, EDGES), dtype="int64", low=0, high=NODES), *data]
        case Role.INTEGER:
            numbers = [InputText(name=name, shape=(), literal=text) for text in ("1", "16", str(length))]
            return [*numbers, ids, *data]
        case Role.NUMBER:
            return [InputText(name=name, shape=(), literal="0.5"), InputText(name=name, shape=(batch, 1)), *data]
        case Role.FLAG:
            return [
                InputText(name=name, shape=(), literal="False"),
                InputText(name=name, shape=(), literal="True"),
                none,
            ]
    return data


def _masks(name: str, role: Role, facts: Facts, batch: int) -> list[InputText]:
    """Masks in the order that their role makes likely. Most code takes bools; products with masks need numbers."""
    length = facts.sequence_length
    per_token = InputText(name=name, shape=(batch, length), dtype="bool")
    per_pair = InputText(name=name, shape=(length, length), dtype="bool")
    ones = InputText(name=name, shape=(batch, length), dtype="int64", low=1, high=2)
    per_batch = InputText(name=name, shape=(batch, 1, length), dtype="bool")
    square = InputText(name=name, shape=(batch, 1, length, length), dtype="bool")
    none = InputText(name=name, shape=(), literal="None")
    if role is Role.PADDING_MASK:
        return [per_token, ones, none]
    if role is Role.ATTENTION_MASK:
        return [per_pair, per_batch, square, per_token, none]
    images = [replace(text, low=None, high=None) for text in data_inputs(name, facts, batch) if len(text.shape) == 4]
    return [per_token, per_batch, square, per_pair, ones, none, *images]


def _states(name: str, facts: Facts, model: nn.Module, batch: int, *, in_pairs: bool) -> Iterator[Value]:
    """The first state of a recurrent network: as the model creates it, else by its first recurrent layer.

    `in_pairs`: one parameter takes both tensors of an LSTM.
    """
    for method in INITIAL_STATES:
        initialize = getattr(model, method, None)
        if callable(initialize):
            for arguments in ((batch,), ()):
                state = _call_quietly(initialize, arguments)
                if state is not None:
                    yield _texts_of(name, state)
                    break
    layer = facts.first(nn.RNNBase, nn.RNNCellBase)
    if isinstance(layer, nn.RNNBase):
        text = InputText(
            name=name, shape=(layer.num_layers * (2 if layer.bidirectional else 1), batch, layer.hidden_size)
        )
        yield as_list(text, 2) if in_pairs and isinstance(layer, nn.LSTM) else (text,)
    elif layer is not None:
        text = InputText(name=name, shape=(batch, layer.hidden_size))
        yield as_list(text, 2) if in_pairs and isinstance(layer, nn.LSTMCell) else (text,)
    for attribute, size in vars(model).items():
        if type(size) is int and is_concept(attribute, "hidden width"):
            yield (InputText(name=name, shape=(batch, size)),)
    yield (InputText(name=name, shape=(), literal="None"),)


def _call_quietly(function: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        with META:
            return function(*arguments)
    except (ArithmeticError, AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError):
        return None  # the layers give the shape of the state too


def _texts_of(name: str, state: object) -> Value:
    items = list(tensors_in(state))
    if len(items) == 1 and not isinstance(state, (tuple, list)):
        return (text_of(items[0], name),)
    return tuple(text_of(item, f"{name}[{index}]") for index, item in enumerate(items))
