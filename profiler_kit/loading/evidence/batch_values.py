"""Converts a value of a data loader, or the example inputs of a file, to a Batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from profiler_kit.errors import TargetError
from profiler_kit.loading.vocabulary import is_label
from profiler_kit.meta.batch import Batch, Forward, named_fields, tensors_in
from profiler_kit.user_code.locations import type_with_article

# Parameters of forward that take a batch as it is.
_BATCH_PARAMETERS: Final = ("batch", "data_batch", "batch_data", "batch_dict", "data_dict", "sample", "samples")


def to_batch(value: object, forward: Forward, where: str) -> Batch:
    """Convert a value of a data loader to a Batch.

    A tensor is the only input. In a tuple or list, the first items are inputs, as many as `forward` requires, and the other
    items are labels. In a mapping, a dataclass or a named tuple, items with the name of a parameter of `forward` are keyword
    inputs, and the other items are labels. If `forward` has one parameter for the whole batch, it gets the value as it is.

    Raises:
        TargetError: the value contains no input tensor.
    """
    hint = "yield tensors, (inputs..., labels) tuples, or dicts with the parameter names of forward as keys"
    batch = _batch(value, forward)
    if batch is None:
        raise TargetError(f"the data loader yielded {type_with_article(value)}", where=where, hint=hint)
    if next(batch.tensors(), None) is None:
        raise TargetError(f"the data loader yielded no tensor for {forward}", where=where, hint=hint)
    return batch


def _batch(value: object, forward: Forward) -> Batch | None:
    items = dict(value) if isinstance(value, Mapping) else named_fields(value)
    if isinstance(value, Tensor):
        return Batch(args=(value,))
    if _takes_whole_batch(value, items, forward):
        return Batch(args=(value,))
    inputs = {key: item for key, item in items.items() if _is_input(key, forward)}
    if isinstance(value, Mapping) or (items and inputs):
        return Batch(kwargs=inputs, labels=tuple(item for key, item in items.items() if key not in inputs))
    if isinstance(value, (tuple, list)):
        return _from_sequence(tuple(value), forward)
    return None


def _from_sequence(value: tuple[Any, ...], forward: Forward) -> Batch:
    first = value[0] if value else None
    if isinstance(first, Mapping) and first and all(_is_input(key, forward) for key in first):
        return Batch(kwargs=dict(first), labels=value[1:])  # (inputs by name, labels...)
    count = max(1, len([name for name in forward.required if name in forward.positional]))
    if forward.takes_more and not forward.required:
        count = max(1, len(value) - 1)
    return Batch(args=value[:count], labels=value[count:])


def _takes_whole_batch(value: object, items: Mapping[Any, Any], forward: Forward) -> bool:
    """Whether `forward` gets `value` as its only argument, and reads the tensors from it."""
    names = forward.required or forward.positional[:1]
    if len(names) != 1 or names[0] not in forward.positional:
        return False
    if names[0] in _BATCH_PARAMETERS:
        return not isinstance(value, Tensor) and names[0] not in items
    is_record = bool(items) and not (isinstance(value, tuple) and not isinstance(value, Mapping))
    return is_record and not any(_is_input(key, forward) for key in items) and _has_tensors(value)


def _has_tensors(value: object) -> bool:
    return next(tensors_in(value), None) is not None


def _is_input(key: object, forward: Forward) -> bool:
    return isinstance(key, str) and (key in forward.names or (forward.takes_any_keyword and not is_label(key)))


def example_batch(value: object, forward: Forward) -> Batch:
    """Convert example inputs to a Batch without labels: a tensor, a tuple or list of arguments, or arguments by name."""
    items = dict(value) if isinstance(value, Mapping) else named_fields(value)
    if isinstance(value, Batch):
        return value
    if isinstance(value, (Tensor, PackedSequence)) or _takes_whole_batch(value, items, forward):
        return Batch(args=(value,))
    if items and not isinstance(value, tuple) and all(isinstance(key, str) for key in items):
        return Batch(kwargs=items)
    return Batch(args=tuple(value)) if isinstance(value, (tuple, list)) else Batch()
