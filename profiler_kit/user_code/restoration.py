"""Restores the changes of a pass over a model: gradients, tensors, random generators, and the state of all objects in reach.

A pass runs code of the user, which may append to a list of its module, count calls in a class attribute, or write into a
cache that the caller passed. The state is saved object by object and written back into the same objects, so that every pass
starts from the same state, and the caller finds its own state.
"""

from __future__ import annotations

import functools
import itertools
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FunctionType, GeneratorType
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

from profiler_kit.foreign import attribute_of
from profiler_kit.user_code.locations import display_path
from profiler_kit.user_code.process_settings import CopiedContext, SavedSettings
from profiler_kit.user_code.reachable import LRU_CACHE, is_iterator, named_globals, reachable
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
    """Restore the state of all objects that code given `roots` can reach, and that of the process, after the block."""
    saved = SavedObjects(*roots, weights=weights)
    try:
        with torch.random.fork_rng(devices=[]):
            yield saved
    finally:
        saved.restore()


class SavedObjects:
    """The state of all objects that code given `roots` can reach (see `reachable`). `tensors` are the tensors among them.

    It includes the settings of the process, its random generators, and the context variables. Until `restore`, caches of
    functions are other, empty ones, and iterators are copies. A generator cannot be copied or set back; `read_iterators`
    names it.
    """

    def __init__(self, *roots: Any, weights: bool = False) -> None:
        self.tensors: list[Tensor] = []
        self._objects: list[Restore] = []
        self._values: list[Restore] = []
        self._replaced: dict[int, Any] = {}  # caches and iterators
        self._positions: dict[int, Any] = {}  # of the iterators
        self._settings = SavedSettings()
        spaces: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        savers: dict[type, tuple[Save, ...]] = {}
        named_kinds = {LRU_CACHE}
        generators = (random.seed, attribute_of(sys.modules.get("numpy.random"), "rand", object))
        functions: list[FunctionType] = []
        empty: list[Any] = []
        for value in reachable((*roots, *generators), empty=empty):
            kind = type(value)
            if kind not in savers:
                savers[kind] = savers_of(kind)
                if is_iterator(kind):
                    named_kinds.add(kind)
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
            elif kind in named_kinds:
                self._replaced[id(value)] = value
                if kind is not LRU_CACHE:
                    self._positions[id(value)] = _position(value)
        for function in functions:
            _add_globals(spaces, function, named_kinds)
        self._objects.append(partial(_clear, empty))
        self._objects += [partial(restore_names, space, saved) for space, saved in spaces.values()]
        self._context = CopiedContext()
        self._replace()

    def restore(self) -> None:
        """Write the saved state back into the objects."""
        try:
            with torch.no_grad():
                for restore in (*self._objects, *self._values):
                    restore()
        finally:
            self._settings.restore()
            self._context.leave()

    def restart(self) -> None:
        """Restore the objects before another step of the same pass. Tensors keep their values and gradients."""
        for restore in self._objects:
            restore()
        self._settings.restore()
        self._context.leave()
        self._context = CopiedContext()
        self._replace()

    def read_iterators(self) -> list[str]:
        """The iterators that have been read: a generator by its function and place, others by their name, if they have one."""
        read = {
            key: self._replaced[key] for key, old in self._positions.items() if _position(self._replaced[key]) != old
        }
        names = {id(value): key for _, _, key, value in self._places(read) if key != "cell_contents"}
        return [_iterator_name(value, names.get(key)) for key, value in read.items()]

    def _replace(self) -> None:
        """Put empty caches and copies of iterators into the places of caches and iterators."""
        replacements = {key: _replacement(value) for key, value in self._replaced.items()}
        for put, holder, key, value in list(self._places(self._replaced)):
            if (replacement := replacements[id(value)]) is not None:
                put(holder, key, replacement)

    def _places(self, values: dict[int, Any]) -> Iterator[tuple[Callable[[Any, Any, Any], None], Any, Any, Any]]:
        """The places of `values`, which are by id: how to fill one, its holder and key, and the value."""
        for restore in self._objects if values else ():
            if isinstance(restore, partial) and restore.func in _PUT:
                holder, saved = restore.args
                for key, value in saved.items():
                    if id(value) in values:
                        yield _PUT[restore.func], holder, key, value


def _clear(containers: list[Any]) -> None:
    """Empty the lists, dicts and sets in `containers`."""
    for container in containers:
        if container:
            container.clear()


def _add_globals(
    spaces: dict[int, tuple[dict[str, Any], dict[str, Any]]], function: FunctionType, named_kinds: set[type]
) -> None:
    """Add the values of the globals that `function` may change to `spaces`, by the id of the namespace."""
    for space, read, assigned in named_globals(function):
        saved = spaces.setdefault(id(space), (space, {}))[1]
        names = (*assigned, *(name for name in read if name in space and type(space[name]) in named_kinds))
        saved.update((name, space.get(name, MISSING)) for name in names if name not in saved)


def _replacement(value: Any) -> Any:
    """An empty cache for a cache, a copy for an iterator; None for a generator, and for what this Python cannot copy."""
    if isinstance(value, LRU_CACHE):
        return functools.update_wrapper(functools.lru_cache(**value.cache_parameters())(value.__wrapped__), value)
    with warnings.catch_warnings(), suppress(TypeError):
        warnings.simplefilter("ignore", DeprecationWarning)  # of itertools, since Python 3.12
        return _copied(value)
    return None


def _copied(value: Any) -> Any:
    """`value` with copies of the iterators in it, at the same positions: also of those that a zip or a chain reads."""
    if type(value) is tuple:
        return tuple(map(_copied, value))
    if not is_iterator(type(value)):
        return value
    make, arguments, *state = value.__reduce__()  # as (iter, ([1, 2],), 0); a generator raises TypeError
    copied = make(*_copied(arguments))
    if state and state[0] is not None:
        copied.__setstate__(_copied(state[0]))
    return copied


def _position(iterator: Any) -> Any:
    """What changes when `iterator` is read, as far as Python shows it without reading it, and without code of the objects."""
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        return frame and (frame.f_lasti, [*map(id, frame.f_locals.values())], _position(iterator.gi_yieldfrom))
    if isinstance(iterator, itertools.count):
        return repr(iterator)
    if type(iterator).__module__ != "builtins" or not is_iterator(type(iterator)):
        return iterator if type(iterator) in (int, range) else None
    with suppress(TypeError):  # an iterator without this method
        _, arguments, *index = iterator.__reduce__()  # as (iter, ([1, 2],), 0)
        return [*map(_position, (*arguments, *index))]
    return None


def _iterator_name(iterator: Any, name: str | None) -> str:
    if isinstance(iterator, GeneratorType):
        code = iterator.gi_code
        return f"{code.co_name}() at {display_path(code.co_filename)}:{code.co_firstlineno}"
    return f"{name} ({type(iterator).__name__})" if name else f"a {type(iterator).__name__}"
