"""Foreach ops on meta tensors: equal items of the lists run once.

A foreach op applies one op to every item of its lists, independently. On meta tensors torch runs a kernel per item, many of
them written in Python, so the optimizer of a model with hundreds of parameters would take longer than its forward pass.
Items with equal metadata have equal results. This runs the op on one item of each kind, and makes the other results like
those of the first item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from profiler_kit.meta.metadata import append_metadata, share_storage, storages_of, tensor_factory

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
