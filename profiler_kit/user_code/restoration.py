"""Restores the changes of a pass over a model: gradients, tensors, random generators, and the state of all objects in reach.

A pass runs code of the user, which may append to a list of its module, count calls in a class attribute, or write into a
cache that the caller passed. The state is saved object by object and written back into the same objects, so that every pass
starts from the same state, and the caller finds its own state.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

from profiler_kit.user_code.reachable import LRU_CACHE, is_replaced, named_globals, reachable
from profiler_kit.user_code.saved_state import (
    MISSING,
    Restore,
    Save,
    restore_cell,
    restore_class,
    restore_dict,
    restore_names,
    save_values,
    savers_of,
)

# How a value is put into the holders that these functions restore.
_PUT: Final[dict[Callable[..., None], Callable[[Any, Any, Any], None]]] = {
    restore_dict: dict.__setitem__,
    restore_names: dict.__setitem__,
    restore_class: type.__setattr__,
    restore_cell: setattr,
}


class _Target(Protocol):
    def user_objects(self) -> tuple[Any, ...]: ...


@contextmanager
def restored(target: _Target, *, weights: bool = False) -> Iterator[SavedObjects]:
    """Run the block on `target` without gradients, and restore all that its step can reach, also after an exception.

    Restores tensors with values (running statistics, inputs), and with `weights` also parameters, for a block that runs an
    optimizer. Meta tensors have no values to restore.
    """
    with restored_objects(*target.user_objects(), weights=weights) as saved:
        tensors = [tensor for tensor in saved.tensors if tensor.is_leaf]
        gradients = [(tensor, tensor.grad) for tensor in tensors]
        for tensor, gradient in gradients:
            if gradient is not None:
                tensor.grad = None
        try:
            yield saved
        finally:
            for tensor, gradient in gradients:
                tensor.grad = gradient


@contextmanager
def restored_objects(*roots: Any, weights: bool = False) -> Iterator[SavedObjects]:
    """Restore the state of all objects that code given `roots` can reach, and torch's random generator, after the block."""
    saved = SavedObjects(*roots, weights=weights)
    try:
        with torch.random.fork_rng(devices=[]):
            yield saved
    finally:
        saved.restore()


class SavedObjects:
    """The state of all objects that code given `roots` can reach (see `reachable`). `tensors` are the tensors among them.

    Until `restore`, caches of functions are other, empty ones, and iterators are read through a record. An iterator that
    was read cannot be set back: one that returns the same items takes its place.
    """

    def __init__(self, *roots: Any, weights: bool = False) -> None:
        self.tensors: list[Tensor] = []
        self._objects: list[Restore] = []
        self._values: list[Restore] = []
        self._replaced: dict[int, Any] = {}
        spaces: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        savers: dict[type, tuple[Save, ...]] = {}
        replaced_kinds: set[type] = set()
        functions: list[FunctionType] = []
        empty: list[Any] = []
        for value in reachable(roots, empty=empty):
            kind = type(value)
            if kind not in savers:
                savers[kind] = savers_of(kind)
                if is_replaced(kind):
                    replaced_kinds.add(kind)
            for save in savers[kind]:
                if (restore := save(value)) is not None:
                    self._objects.append(restore)
            if kind is dict:
                continue
            if kind is FunctionType:
                functions.append(value)
            elif issubclass(kind, Tensor):
                self.tensors.append(value)
                if (weights or not issubclass(kind, nn.Parameter)) and (restore := save_values(value)) is not None:
                    self._values.append(restore)
            elif kind in replaced_kinds:
                self._replaced[id(value)] = value if kind is LRU_CACHE else _Record(value)
        for function in functions:
            _add_globals(spaces, function, replaced_kinds)
        self._objects.append(partial(_clear, empty))
        self._objects += [partial(restore_names, space, saved) for space, saved in spaces.values()]
        self._replace()

    def restore(self) -> None:
        """Write the saved state back into the objects."""
        with torch.no_grad():
            for restore in (*self._objects, *self._values):
                restore()
        for put, holder, key, replaced in self._places():
            if isinstance(replaced, _Record) and replaced.items:
                put(holder, key, replaced.rest)

    def restart(self) -> None:
        """Restore the objects before another step of the same pass. Tensors keep their values and gradients."""
        for restore in self._objects:
            restore()
        self._replace()

    def _replace(self) -> None:
        """Put empty caches and records into the places of caches and iterators."""
        for put, holder, key, replaced in list(self._places()):
            if isinstance(replaced, _Record):
                replaced.position = 0
                put(holder, key, replaced)
            else:
                cache = functools.lru_cache(**replaced.cache_parameters())(replaced.__wrapped__)
                put(holder, key, functools.update_wrapper(cache, replaced))

    def _places(self) -> Iterator[tuple[Callable[[Any, Any, Any], None], Any, Any, Any]]:
        """The places of caches and iterators: how to fill one, its holder and key, and the cache or the record."""
        for restore in self._objects if self._replaced else ():
            if not isinstance(restore, partial) or restore.func not in _PUT:
                continue
            holder, saved = restore.args
            for key, value in saved.items():
                if id(value) in self._replaced:
                    yield _PUT[restore.func], holder, key, self._replaced[id(value)]


def _clear(containers: list[Any]) -> None:
    """Empty the lists, dicts and sets in `containers`."""
    for container in containers:
        if container:
            container.clear()


def _add_globals(
    spaces: dict[int, tuple[dict[str, Any], dict[str, Any]]], function: FunctionType, replaced_kinds: set[type]
) -> None:
    """Add the values of the globals that `function` may change to `spaces`, by the id of the namespace."""
    for space, read, assigned in named_globals(function):
        saved = spaces.setdefault(id(space), (space, {}))[1]
        names = (*assigned, *(name for name in read if name in space and type(space[name]) in replaced_kinds))
        saved.update((name, space.get(name, MISSING)) for name in names if name not in saved)


class _Record:
    """An iterator that keeps the items it reads from `source`, so that it can start again."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self.items: list[Any] = []
        self.position = 0

    def __iter__(self) -> _Record:
        return self

    def __next__(self) -> Any:
        if self.position == len(self.items):
            self.items.append(next(self._source))
        self.position += 1
        return self.items[self.position - 1]

    @functools.cached_property
    def rest(self) -> Iterator[Any]:
        """All items of the source, those that were read first."""
        return itertools.chain(self.items, self._source)
