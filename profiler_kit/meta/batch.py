"""The inputs and labels of one step, and the inputs that `forward` declares."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from profiler_kit.errors import UsageError
from profiler_kit.records.target import InputInfo
from profiler_kit.user_code.reachable import is_shared, reachable

NO_INPUTS: Final = object()  # None would be a valid value
_UNCHANGEABLE: Final = (Tensor, bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
MAX_SEQUENCE_DIMENSIONS: Final = 3  # sequence, batch, features; images have more


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The data of one step: positional and keyword inputs of `forward`, and the labels for the loss.

    `labels` is empty if the loss needs none, or if random labels are created later from the shape of the output.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[Any, ...] = ()

    def values(self) -> tuple[Any, ...]:
        """All inputs, positional ones first: the arguments of a ``loss_fn(output, *inputs)``."""
        return (*self.args, *self.kwargs.values())

    def tensors(self) -> Iterator[Tensor]:
        """All input tensors, including nested ones, without labels."""
        yield from tensors_in(self.args)
        yield from tensors_in(self.kwargs)

    def fresh(self) -> Batch:
        """This batch for another step: with the same tensors, and copies of the lists, dicts and objects that hold them.

        A step may append to a cache that it gets as an input, and the next one must not find that, or go back through its graph.
        """
        args, kwargs = copied_containers((self.args, dict(self.kwargs)), _fresh)
        return Batch(args=args, kwargs=kwargs, labels=self.labels)

    def with_label(self, name: str) -> Batch:
        """This batch with its first label as the keyword input `name`; unchanged without labels."""
        if not self.labels or name in self.kwargs:
            return self
        return Batch(args=self.args, kwargs={**self.kwargs, name: self.labels[0]}, labels=self.labels[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """The parameters that a model's `forward` declares."""

    positional: tuple[str, ...]
    required: tuple[str, ...]
    keyword_only: tuple[str, ...]
    takes_more: bool
    takes_any_keyword: bool

    @property
    def names(self) -> tuple[str, ...]:
        """All declared names, in order."""
        return self.positional + self.keyword_only

    def __str__(self) -> str:
        more = ("*args",) if self.takes_more else ()
        return f"forward({', '.join(self.names + more)})"


def forward_of(model: nn.Module) -> Forward:
    """The signature of `model.forward`; without one (scripted modules), it accepts any arguments."""
    try:
        parameters = signature_of_forward(model)
    except (TypeError, ValueError):
        return Forward(positional=(), required=(), keyword_only=(), takes_more=True, takes_any_keyword=True)
    kinds = inspect.Parameter
    positional = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    keyword = [p for p in parameters if p.kind is kinds.KEYWORD_ONLY]
    return Forward(
        positional=tuple(p.name for p in positional),
        required=tuple(p.name for p in positional + keyword if p.default is kinds.empty),
        keyword_only=tuple(p.name for p in keyword),
        takes_more=any(p.kind is kinds.VAR_POSITIONAL for p in parameters),
        takes_any_keyword=any(p.kind is kinds.VAR_KEYWORD for p in parameters),
    )


def signature_of_forward(model: nn.Module) -> list[inspect.Parameter]:
    """The parameters of `model.forward`. Raises TypeError or ValueError without a signature.

    The signature of a method for the compiler of torch contains ``self``, which its calls do not pass.
    """
    parameters = list(inspect.signature(model.forward).parameters.values())
    return parameters[1:] if parameters and parameters[0].name == "self" else parameters


def tensors_in(value: object) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists, mappings, dataclasses and namespaces, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    else:
        for item in named_fields(value).values():
            yield from tensors_in(item)


def example_count(batch: Batch, model: nn.Module) -> int | None:
    """The number of examples in a step: the leading size of the first input; None where that may be a length.

    A packed sequence states it. A recurrent or attention layer that reads (sequence, batch, features) leaves open which
    dimension of a sequence is the batch.
    """
    first = next((value for value in batch.values() if next(tensors_in(value), None) is not None), None)
    if isinstance(first, PackedSequence):
        return int(first.batch_sizes[0])
    tensor = next(tensors_in(first), None)
    if tensor is None or not tensor.dim():
        return None
    may_be_length = tensor.dim() <= MAX_SEQUENCE_DIMENSIONS and reads_sequence_first(model.modules())
    return None if may_be_length else tensor.shape[0]


def reads_sequence_first(layers: Iterable[object]) -> bool:
    """Whether the first recurrent or attention layer expects (sequence, batch, features)."""
    layer = next((layer for layer in layers if isinstance(layer, (nn.RNNBase, nn.MultiheadAttention))), None)
    return layer is not None and not layer.batch_first


def named_fields(value: object) -> dict[str, Any]:
    """The fields of a dataclass, a named tuple or a namespace, by name; {} for other values."""
    if isinstance(value, type):
        return {}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    return dict(vars(value)) if isinstance(value, SimpleNamespace) else {}


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """`value` with every tensor replaced by ``change(tensor)``.

    Containers are copied with their type, and objects whose tensors change are copied deeply. Others are reused, as is an
    object that cannot be copied, or that holds a model.
    """
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return _copied_mapping(value, {key: map_tensors(item, change) for key, item in value.items()})
    if isinstance(value, PackedSequence):  # its batch sizes are structure, and must stay on the CPU
        indices = (map_tensors(index, change) for index in (value.sorted_indices, value.unsorted_indices))
        return PackedSequence(map_tensors(value.data, change), value.batch_sizes, *indices)
    if isinstance(value, tuple) and hasattr(
        value, "_fields"
    ):  # the constructor of a named tuple takes separate arguments
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(item, change) for item in value)
    fields = named_fields(value)
    if next(tensors_in(fields), None) is None:
        return _copied_object(value, change)
    copied = copy.copy(value)
    for name, item in fields.items():
        object.__setattr__(copied, name, map_tensors(item, change))  # also for a frozen dataclass
    return copied


def copied_containers(value: Any, change: Callable[[Any], Any] = lambda item: item) -> Any:
    """`value` with its lists, tuples and dicts copied, and ``change(item)`` for what they hold.

    Of an output: the model may own the containers, and restoring the model would empty them.
    """
    if type(value) is dict:
        return {key: copied_containers(item, change) for key, item in value.items()}
    return (
        type(value)([copied_containers(item, change) for item in value])
        if type(value) in (list, tuple)
        else change(value)
    )


def _copied_object(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    held = list(reachable((value,), into_code=False))
    changed = {id(tensor): change(tensor) for tensor in held if isinstance(tensor, Tensor)}
    return value if all(changed.get(id(item), item) is item for item in held) else _deep_copy(value, held, changed)


def _fresh(value: Any) -> Any:
    if isinstance(value, _UNCHANGEABLE):
        return value
    held = list(reachable((value,), into_code=False))
    return _deep_copy(value, held, {id(item): item for item in held if isinstance(item, Tensor)})


def _deep_copy(value: Any, held: list[Any], tensors: dict[int, Tensor]) -> Any:
    """A copy of `value`, which holds `held`, with `tensors` for the tensors of these ids; `value` if it cannot be copied."""
    if any(issubclass(type(item), nn.Module) for item in held):
        return value
    shared = {id(item): item for item in held if is_shared(type(item))}
    with contextlib.suppress(Exception):  # it may run any code, and is not needed: the state of `value` is restored
        return copy.deepcopy(value, {**shared, **tensors})
    return value


def _copied_mapping(original: Mapping[Any, Any], items: dict[Any, Any]) -> Mapping[Any, Any]:
    """`items` as a mapping of the type of `original`, whose attributes code may read, as in ``batch.input_ids``."""
    if type(original) is dict:
        return items
    try:
        copied = copy.copy(original)
        for key, item in items.items():
            copied[key] = item  # type: ignore[index]
    except (TypeError, ValueError, AttributeError):
        return items  # a read-only mapping
    return copied


def map_batch(batch: Batch, inputs: Callable[[Tensor], Tensor], labels: Callable[[Tensor], Tensor]) -> Batch:
    """`batch` with every input tensor replaced by ``inputs(tensor)`` and every label by ``labels(tensor)``."""
    return Batch(
        args=map_tensors(batch.args, inputs),
        kwargs=map_tensors(batch.kwargs, inputs),
        labels=map_tensors(batch.labels, labels),
    )


def batch_size(batch: Batch) -> int | None:
    """The first dimension of the first input tensor that has dimensions, or of the first array; None without one.

    Of packed inputs, the number of their sequences.
    """
    packed = next((value for value in batch.values() if isinstance(value, PackedSequence)), None)
    if packed is not None:
        return int(packed.batch_sizes[0])
    tensors = [tuple(tensor.shape) for tensor in batch.tensors()]
    arrays = [value.shape for value in batch.values() if isinstance(value, np.ndarray)]
    return next((shape[0] for shape in tensors + arrays if shape), None)


def resized(batch: Batch, size: int) -> Batch:
    """`batch` with another batch size: tensors and arrays whose first dimension equals `batch_size(batch)` get `size` rows.

    Rows are repeated cyclically or dropped.
    """
    common = batch_size(batch)
    if any(isinstance(value, PackedSequence) for value in batch.values()):
        raise UsageError(
            "the batch size of packed sequences cannot be changed", hint="pack as many sequences as you need"
        )

    def change(tensor: Tensor) -> Tensor:
        if tensor.dim() == 0 or tensor.shape[0] != common or common == 0:
            return tensor
        return tensor[torch.arange(size, device=tensor.device) % common]

    def changed(value: Any) -> Any:
        return change(torch.from_numpy(value)).numpy() if isinstance(value, np.ndarray) else value

    tensors = map_batch(batch, change, change)
    kwargs = {name: changed(value) for name, value in tensors.kwargs.items()}
    return Batch(args=tuple(map(changed, tensors.args)), kwargs=kwargs, labels=tensors.labels)


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def describe_inputs(batch: Batch, forward: Forward) -> tuple[InputInfo, ...]:
    """Name, shape and dtype of every input tensor; a nested one is named ``x[0]`` or ``x.key``."""
    names = [forward.positional[i] if i < len(forward.positional) else f"arg{i}" for i in range(len(batch.args))]
    named = [*zip(names, batch.args, strict=True), *batch.kwargs.items()]
    return tuple(info for name, value in named for info in _describe(name, value))


def _describe(name: str, value: object) -> Iterator[InputInfo]:
    if isinstance(value, np.ndarray):
        yield InputInfo(name=name, shape=value.shape, dtype=f"np.{value.dtype}")
    elif isinstance(value, Tensor):
        yield InputInfo(name=name, shape=tuple(value.shape), dtype=dtype_name(value.dtype))
    elif isinstance(value, Mapping) or (fields := named_fields(value)):
        for key, item in (value if isinstance(value, Mapping) else fields).items():
            yield from _describe(f"{name}.{key}", item)
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from _describe(f"{name}[{i}]", item)
