"""Metadata of meta tensors: everything that decides the result of an op on them, and new tensors with the same metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
