"""How the state of each kind of object is saved and written back into the same object."""

from __future__ import annotations

import array
import collections
import contextlib
import queue
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from operator import is_
from types import CellType, MemberDescriptorType
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn.parameter import is_lazy
from torch.utils._mode_utils import no_dispatch

from profiler_kit.user_code.reachable import is_user_class, slots_of, state_methods

Restore = Callable[[], None]
Save = Callable[[Any], Restore | None]  # None: the object has nothing to restore

MISSING: Final = object()
_MAX_SAVED_BYTES: Final = 1 << 30  # of one array; larger ones are data sets, which a step reads


def has_values(tensor: Tensor) -> bool:
    """Whether `tensor` has values, and is neither a meta nor a fake tensor."""
    return not (tensor.is_meta or isinstance(tensor, FakeTensor))


def savers_of(kind: type) -> tuple[Save, ...]:
    """The functions that save the parts of an object of `kind`, other than tensors and the globals of functions."""
    savers: list[Save] = []
    for base, save in _SAVERS:
        if issubclass(kind, base):
            savers.append(save)
            break
    else:
        if save_state := _random_state_saver(kind):
            savers.append(save_state)
        elif methods := state_methods(kind):
            savers.append(partial(_save_state, *methods))
    slots = slots_of(kind)
    return (*savers, partial(_save_slots, slots)) if slots else tuple(savers)


def save_values(tensor: Tensor) -> Restore | None:
    """Save the values of `tensor`; None for a tensor without values."""
    if not has_values(tensor) or is_lazy(tensor):
        return None
    if type(tensor) not in (Tensor, nn.Parameter):
        return partial(_restore_subclass, tensor, tensor.detach().clone())
    if tensor.layout is torch.strided and tensor.nbytes > _MAX_SAVED_BYTES and not isinstance(tensor, nn.Parameter):
        return None
    with no_dispatch(), torch._C.DisableTorchFunction():  # a fake tensor mode would create a fake copy
        version = contextlib.nullcontext() if tensor.is_inference() else _unsafe_preserve_version_counter(tensor)
        return partial(_restore_values, tensor, tensor.detach().clone(), version)


def _restore_subclass(tensor: Tensor, saved: Tensor) -> None:
    tensor.copy_(saved)


def _restore_values(tensor: Tensor, saved: Tensor, version: AbstractContextManager[None]) -> None:
    """Write `saved` back if the values have changed: memory that nothing changed may be read-only.

    The tensor gets its earlier `version` back: a graph of the caller that has saved it can still run backward.
    """
    with no_dispatch(), torch._C.DisableTorchFunction(), version:
        data = tensor.data  # writing to it does not invalidate graphs that have saved the tensor
        if data.shape != saved.shape:
            tensor.data = saved.clone()
        elif data.layout is not torch.strided or not _is_equal(data, saved):
            data.copy_(saved)


def _is_equal(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a, b) or (a.is_floating_point() and torch.equal(a.nan_to_num(), b.nan_to_num()))


def restore_dict(current: dict[Any, Any], saved: dict[Any, Any]) -> None:
    """Give `current` the items of `saved`, in their order. It is never empty in between: other threads may read a namespace."""
    base = _base_of(current)
    if not saved and not current:
        return
    same = len(current) == len(saved) and all(map(is_, base.values(current), saved.values()))
    if same and all(map(is_, base.keys(current), saved)):
        return
    for key in [key for key in list(base.keys(current)) if key not in saved]:
        base.__delitem__(current, key)
    for key, value in saved.items():
        if dict.get(current, key, MISSING) is not value:
            base.__setitem__(current, key, value)
    if not all(map(is_, base.keys(current), saved)):
        for key, value in saved.items():
            base.__delitem__(current, key)
            base.__setitem__(current, key, value)


def _base_of(value: dict[Any, Any]) -> Any:
    """The builtin class whose methods `value` has, without those that its own class overrides."""
    return collections.OrderedDict if issubclass(type(value), collections.OrderedDict) else dict


def restore_names(space: dict[str, Any], saved: dict[str, Any]) -> None:
    """Give the names in `saved` their values in the namespace `space`; `MISSING` removes a name. Other names stay."""
    for name, value in saved.items():
        if space.get(name, MISSING) is not value:
            if value is MISSING:
                del space[name]
            else:
                space[name] = value


def restore_class(kind: type, saved: dict[str, Any]) -> None:
    """Give the class `kind` the attributes in `saved`."""
    for name in [name for name in vars(kind) if name not in saved]:
        type.__delattr__(kind, name)
    for name, value in saved.items():
        if vars(kind).get(name, MISSING) is not value:
            type.__setattr__(kind, name, value)


def restore_cell(cell: CellType, saved: dict[str, Any]) -> None:
    """Give a variable of an outer function its value; {} for none."""
    if saved:
        cell.cell_contents = saved["cell_contents"]
    else:
        del cell.cell_contents


def _save_dict(value: dict[Any, Any]) -> Restore:
    return partial(restore_dict, value, dict(_base_of(value).items(value)))


def _save_list(value: list[Any]) -> Restore:
    saved = list(list.__iter__(value))

    def restore() -> None:
        if len(value) != len(saved) or not all(map(is_, list.__iter__(value), saved)):
            list.__setitem__(value, slice(None), saved)

    return restore


def _save_deque(value: collections.deque[Any]) -> Restore:
    saved = list(collections.deque.__iter__(value))

    def restore() -> None:
        collections.deque.clear(value)
        collections.deque.extend(value, saved)

    return restore


def _save_simple_queue(value: queue.SimpleQueue[Any]) -> Restore:
    def taken() -> list[Any]:
        return [value.get_nowait() for _ in range(value.qsize())]

    saved = taken()

    def restore() -> None:
        taken()
        for item in saved:
            value.put(item)

    restore()
    return restore


def _save_state(read: Callable[[Any], Any], write: Callable[[Any, Any], None], value: Any) -> Restore | None:
    def restore() -> None:
        with contextlib.suppress(Exception):  # the pass has closed it, or the caller has a view of its memory
            write(value, state)

    with contextlib.suppress(Exception):  # closed, a random generator of the system, or refuses to be pickled
        state = read(value)
        return restore
    return None


def _save_set(value: set[Any]) -> Restore:
    saved = list(set.__iter__(value))

    def restore() -> None:
        if len(value) != len(saved) or not all(set.__contains__(value, item) for item in saved):
            set.clear(value)
            set.update(value, saved)

    return restore


def _save_buffer(value: Any) -> Restore:
    saved = value[:]

    def restore() -> None:
        if value != saved:
            value[:] = saved

    return restore


def _save_class(kind: type) -> Restore | None:
    return partial(restore_class, kind, dict(vars(kind))) if is_user_class(kind) else None


def _save_cell(cell: CellType) -> Restore:
    try:
        return partial(restore_cell, cell, {"cell_contents": cell.cell_contents})
    except ValueError:  # a variable that has no value yet
        return partial(restore_cell, cell, {})


def _save_slots(slots: tuple[MemberDescriptorType, ...], value: Any) -> Restore:
    def read(slot: MemberDescriptorType) -> Any:
        try:
            return slot.__get__(value)
        except AttributeError:  # a slot without a value
            return MISSING

    saved = [(slot, read(slot)) for slot in slots]

    def restore() -> None:
        for slot, content in saved:
            if read(slot) is content:
                continue
            if content is MISSING:
                slot.__delete__(value)
            else:
                slot.__set__(value, content)

    return restore


def _random_state_saver(kind: type) -> Save | None:
    """The function that saves a random generator of torch or numpy, or an array; None for other kinds."""
    if issubclass(kind, torch.Generator):
        return _save_generator
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if issubclass(kind, numpy.ndarray):
        return _save_array
    if issubclass(kind, numpy.random.RandomState):
        return lambda value: partial(value.set_state, value.get_state())
    if issubclass(kind, numpy.random.Generator):
        return lambda value: partial(setattr, value.bit_generator, "state", value.bit_generator.state)
    return None


def _save_generator(value: torch.Generator) -> Restore:
    with no_dispatch(), torch._C.DisableTorchFunction():
        state = value.get_state()

    def restore() -> None:
        value.set_state(state)

    return restore


def _save_array(value: Any) -> Restore | None:
    if not value.flags["W"] or value.nbytes > _MAX_SAVED_BYTES:
        return None
    saved = value.copy()

    def restore() -> None:
        if value.shape == saved.shape:
            value[...] = saved

    return restore


_SAVERS: Final[tuple[tuple[type, Save], ...]] = (
    (dict, _save_dict),
    (list, _save_list),
    (collections.deque, _save_deque),
    (queue.SimpleQueue, _save_simple_queue),
    (set, _save_set),
    (bytearray, _save_buffer),
    (array.array, _save_buffer),
    (type, _save_class),
    (CellType, _save_cell),
)
