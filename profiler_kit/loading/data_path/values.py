"""The values of the data path: arrays of which some sizes are known, lists, loaders and objects of the program's classes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from profiler_kit.loading.program.documents import Document

UNKNOWN: Final = object()

Size = int | None  # None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """A tensor, a NumPy array or an image. `sizes` is None for an unknown number of dimensions, `dtype` for the usual one.

    The dimensions of a picture (`is_picture`, a PIL image) are height, width, channels.
    """

    sizes: tuple[Size, ...] | None
    dtype: str | None = None
    is_picture: bool = False

    def of(self, sizes: tuple[Size, ...] | None) -> Array:
        """An array of the same type with other sizes."""
        return replace(self, sizes=sizes, is_picture=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A list, an iterator or a data set whose items are like `item`. `length` is None if it is unknown."""

    item: Any
    length: Size = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instance:
    """An object of the class `node` of `document`; `made` binds the parameters of its constructor."""

    document: Document
    node: ast.ClassDef
    made: Any = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Function:
    """A function of the program, or with `owner` a method; for a lambda, `frame` is where it stands."""

    document: Document
    node: Any
    owner: Instance | None = None
    frame: Any = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transform:
    """An object that changes pictures: `apply` takes and returns an array."""

    apply: Callable[[Any], Any]


def whole(value: Any) -> Size:
    """`value` as a size; None for anything else."""
    return value if type(value) is int and value >= 0 else None


def sizes_of(value: Any) -> tuple[Size, ...] | None:
    """`value` as sizes: a number, or a tuple of numbers of which some are unknown. None for anything else."""
    if isinstance(value, tuple):
        return tuple(map(whole, value))
    return (value,) if whole(value) is not None else None


def known(value: Any) -> bool:
    """Whether something is known about `value`."""
    return value is not UNKNOWN


def joined(item: Any, size: Size) -> Any:
    """A batch of `size` items like `item`, as torch's default collation makes it; also what stacks them."""
    if isinstance(item, Array):
        return item.of(None if item.sizes is None else (size, *item.sizes))
    if isinstance(item, bool):
        return Array(sizes=(size,), dtype="bool")
    if isinstance(item, int):
        return Array(sizes=(size,), dtype="int64")
    if isinstance(item, float):
        return Array(sizes=(size,))
    if isinstance(item, tuple):
        return tuple(joined(part, size) for part in item)
    if isinstance(item, Mapping):
        return {key: joined(part, size) for key, part in item.items()}
    if isinstance(item, Listing):
        inner = item.item
        array = joined(inner, item.length)
        return joined(array, size) if isinstance(array, Array) else UNKNOWN
    return UNKNOWN


def as_array(value: Any) -> Any:
    """`value` as NumPy and torch make an array of it: nested lists, numbers, arrays."""
    if isinstance(value, Array):
        return value.of(value.sizes)
    if isinstance(value, bool):
        return Array(sizes=(), dtype="bool")
    if isinstance(value, int):
        return Array(sizes=(), dtype="int64")
    if isinstance(value, float):
        return Array(sizes=())
    if isinstance(value, Listing):
        return joined(value.item, value.length) if not isinstance(value.item, (tuple, Mapping)) else UNKNOWN
    if isinstance(value, tuple) and value:
        parts = [as_array(part) for part in value]
        first = next((part for part in parts if isinstance(part, Array)), UNKNOWN)
        return joined(first, len(value))
    return UNKNOWN


def item_of(value: Any, index: Any = 0) -> Any:
    """``value[index]`` for an index that is a number or a key."""
    if isinstance(value, tuple) and type(index) is int and -len(value) <= index < len(value):
        return value[index]
    if isinstance(value, Mapping):
        return value.get(index, UNKNOWN)
    if isinstance(value, Listing):
        return value.item
    if isinstance(value, Array) and type(index) is int and value.sizes:
        return value.of(value.sizes[1:])
    return UNKNOWN


def with_item(value: Any, index: Any, item: Any) -> Any:
    """`value` after ``value[index] = item``. A value that is not known is a dictionary, if the index is a key."""
    if isinstance(value, tuple) and type(index) is int and -len(value) <= index < len(value):
        place = index % len(value)
        return (*value[:place], item, *value[place + 1 :])
    if isinstance(index, str) and (isinstance(value, Mapping) or not known(value)):
        return {**(value if known(value) else {}), index: item}
    return replace(value, item=item) if isinstance(value, Listing) and type(index) is int else value


def items_in(value: Any) -> Any:
    """What a loop over `value` gives."""
    if isinstance(value, Listing):
        return value.item
    if isinstance(value, tuple):
        return next(filter(known, value), UNKNOWN)
    return item_of(value) if isinstance(value, Array) else UNKNOWN
