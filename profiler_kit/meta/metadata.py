"""Metadata of meta tensors: everything that decides the result of an op on them, and new tensors with the same metadata.

Also foreach ops on meta tensors, which apply one op to every item of their lists, independently. torch runs a kernel per
item, many of them written in Python, so the optimizer of a model with hundreds of parameters would take longer than its
forward pass. Items with equal metadata have equal results: the op runs on one item of each kind, and the other results are
made like those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch

from profiler_kit.meta.batch import tensors_in

_PLAIN: Final = frozenset((torch.Tensor, torch.nn.Parameter))
_META: Final = torch.device("meta")
# The key holds the type too: equal numbers (1 == 1.0 == True) of different types give different dtypes.
_NUMBERS: Final = frozenset((float, bool, complex))
_OTHER: Final = frozenset((int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format))


def append_metadata(values: Iterable[Any], key: list[Any], tensors: list[torch.Tensor]) -> bool:
    """Append the metadata of `values` to `key` and their tensors to `tensors`; return False if the key cannot hold a value."""
    for value in values:
        kind = type(value)
        if kind in _PLAIN:
            if not value.is_meta or value.is_nested or value.layout is not torch.strided:
                return False
            tensors.append(value)
            key += (value.shape, value.stride(), value.dtype)
        elif kind in _OTHER:
            key.append(value)
        elif kind in _NUMBERS:
            key += (kind, value)
        elif kind is list or kind is tuple:
            key.append(len(value))
            if not append_metadata(value, key, tensors):
                return False
        else:
            return False
    return True


def share_storage(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether two different tensors of `tensors` have the same storage."""
    distinct = {id(tensor): tensor for tensor in tensors}.values()
    return len({tensor.untyped_storage()._cdata for tensor in distinct}) < len(distinct)


def storages_of(args: Sequence[Any]) -> set[int]:
    """The addresses of the storages of the tensors in `args`."""
    return {tensor.untyped_storage()._cdata for tensor in tensors_in(args)}


def result_factory(args: Sequence[Any], out: Any) -> Callable[[], Any] | None:
    """A function that returns new tensors like those in `out`; None unless all of them are new, strided and separate."""
    storages = storages_of(args)
    if type(out) is torch.Tensor:
        return tensor_factory(out, storages)
    if type(out) not in (tuple, list):
        return None
    factories = []
    for tensor in out:
        factory = None if tensor is None else tensor_factory(tensor, storages)
        if factory is None and tensor is not None:
            return None
        factories.append(factory)
    container = type(out)
    return lambda: container([None if factory is None else factory() for factory in factories])


def tensor_factory(tensor: Any, storages: set[int]) -> Callable[[], torch.Tensor] | None:
    """A function that returns new tensors like `tensor`; None unless it is strided and its storage is not in `storages`.

    Its storage is added to `storages`.
    """
    if type(tensor) is not torch.Tensor or not tensor.is_meta or tensor.layout is not torch.strided:
        return None
    if tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor() or tensor.storage_offset():
        return None
    storage = tensor.untyped_storage()
    if storage._cdata in storages:
        return None
    storages.add(storage._cdata)
    make = partial(torch.empty_strided, tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=_META)
    return make if make().untyped_storage().nbytes() == storage.nbytes() else None


_PREFIX: Final = "_foreach_"
_LISTS: Final = (list, tuple)


def is_foreach(op: torch._ops.OpOverload) -> bool:
    """Whether `op` applies an op to every item of its lists."""
    return op.namespace == "aten" and op._schema.name.startswith(f"aten::{_PREFIX}")


def run_foreach(
    op: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    is_observed: Callable[[torch.Tensor], bool] | None = None,
) -> Any:
    """The result of a foreach op. The op runs on the items that differ, and on those with an observed tensor."""
    lists = [value for value in args if type(value) in _LISTS]
    count = len(lists[0]) if lists else 0
    if any(len(values) != count for values in lists) or any(type(value) in _LISTS for value in kwargs.values()):
        return op(*args, **kwargs)
    first_of: dict[Any, int] = {}  # kind of items -> position of its first item in `positions`
    positions: list[int] = []  # the items that run
    kinds: list[int] = []
    for position, items in enumerate(zip(*lists, strict=True)):
        kind = _kind_of(items, is_observed)
        first = len(positions) if kind is None else first_of.setdefault(kind, len(positions))
        if first == len(positions):
            positions.append(position)
        kinds.append(first)
    if len(positions) == count:
        return op(*args, **kwargs)
    selected = [[value[i] for i in positions] if type(value) in _LISTS else value for value in args]
    out = op(*selected, **kwargs)
    if not isinstance(out, _LISTS) or not out:
        return out  # changed in place
    storages = storages_of(selected)
    factories = [tensor_factory(result, storages) for result in out]
    results: list[Any] = []
    for kind in kinds:
        factory = factories[kind]
        if factory is None:
            return op(*args, **kwargs)
        results.append(factory())
    return type(out)(results)


def _kind_of(items: Sequence[Any], is_observed: Callable[[torch.Tensor], bool] | None) -> Any:
    """Everything that decides the result for `items`; None for items that must run."""
    key: list[Any] = []
    tensors: list[torch.Tensor] = []
    if not append_metadata(items, key, tensors):
        return None
    if is_observed is not None and any(map(is_observed, tensors)):
        return None
    if len(tensors) > 1:
        if share_storage(tensors):
            return None
        key.append(tuple(map([*map(id, tensors)].index, map(id, tensors))))
    return tuple(key)
