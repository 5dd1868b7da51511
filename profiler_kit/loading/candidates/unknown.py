"""Values that nothing states: each learns from its uses in a trial of what kind it is, so that the next trial has such a value.

A use shows the kind once and for all: an attribute of it makes it a configuration, `len` a sequence, `range` or a layer a size, a
calculation a number, a condition a switch, a comparison the value that it is compared with, a call a function.
"""

from __future__ import annotations

import contextlib
import contextvars
import operator
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from torch import nn

GENERIC_SIZE: Final = 64  # of what only its use shows to be a size
_FRACTION: Final = 0.1
_ITEMS: Final = 2
_REDUCTIONS: Final = ("prod", "sum", "mean", "max", "min")  # NumPy asks an object for these, and else converts it

Kind = Literal["argument", "field"]


@dataclass(slots=True)
class Learned:
    """What a trial asked for that nothing states: unknown values, and the paths of all fields that it read."""

    unknowns: list[Unknown] = field(default_factory=list)
    paths: set[tuple[str, ...]] = field(default_factory=set)

    def values(self) -> Iterator[tuple[Kind, tuple[str, ...], Any]]:
        """(kind, path, value) of the unknowns, without those whose fields were read: these are unknowns, too."""
        for unknown in self.unknowns:
            if not unknown._is_node:
                yield unknown._kind, unknown._path, plain_value(unknown)


_learned: contextvars.ContextVar[Learned | None] = contextvars.ContextVar("learned", default=None)


@contextlib.contextmanager
def learning() -> Iterator[Learned]:
    """What code in the context asks for that nothing states."""
    learned = Learned()
    token = _learned.set(learned)
    try:
        yield learned
    finally:
        _learned.reset(token)


def note_read(path: tuple[str, ...]) -> None:
    """Note that a trial reads a field that nothing states."""
    learned = _learned.get()
    if learned is not None:
        learned.paths.add(path)


class Unknown:
    """A value of no known kind.

    `path`: the names that lead to it, from the argument or the configuration that has it. `known`: values of fields by their
    path, with dots, which earlier trials showed.
    """

    __slots__ = ("_children", "_kind", "_known", "_length", "_path", "_usual", "_value")

    def __init__(
        self,
        path: tuple[str, ...],
        kind: Kind = "field",
        known: Mapping[str, Any] | None = None,
        *,
        is_item: bool = False,
    ) -> None:
        self._path, self._kind, self._known = path, kind, known or {}
        self._children: dict[Any, Any] = {}
        self._length = 0
        self._value: Any = None
        # without another use: most fields are switches, most arguments are sizes
        self._usual: Any = GENERIC_SIZE if is_item or kind == "argument" else False
        learned = _learned.get()
        if learned is not None and not is_item:
            learned.unknowns.append(self)
            learned.paths.add(path)

    def _learn(self, value: Any) -> Any:
        """The value that the first use showed: that of this one, if it is the first."""
        if self._value is None:
            self._value = value
        return self._value

    def know(self, values: Mapping[str, Any]) -> None:
        """Use `values` for fields, by their path."""
        self._known = values

    @property
    def _is_node(self) -> bool:
        return self._value is None and any(key != 0 for key in self._children)

    @property
    def _is_open(self) -> bool:
        return self._value is None and not self._children

    def _item(self, index: int) -> Unknown:
        self._length = max(self._length, _ITEMS, index + 1)
        if 0 not in self._children:
            self._children[0] = Unknown((*self._path, "item"), is_item=True)
        item: Unknown = self._children[0]
        return item

    def _field(self, name: str) -> Any:
        if name not in self._children:
            path = (*self._path, name)
            dotted = ".".join(path)
            is_known = dotted in self._known
            self._children[name] = self._known[dotted] if is_known else Unknown(path, "field", self._known)
        return self._children[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in _REDUCTIONS:
            raise AttributeError(name)  # protocols: copy, pickle, inspect
        return self._field(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Unknown.__slots__:
            object.__setattr__(self, name, value)
        else:
            self._children[name] = value

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._field(key)
        if isinstance(key, slice):
            return list(self)[key]
        return self._item(operator.index(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._children[key] = value

    def get(self, name: str, default: Any = None) -> Any:
        """The default that the code passes; without one, the field."""
        return self._field(name) if default is None else default

    def keys(self) -> list[str]:
        """No names, as nothing states them."""
        return []

    def items(self) -> list[tuple[str, Any]]:
        """No fields, as nothing states them."""
        return []

    def __contains__(self, key: object) -> bool:
        return False

    def __len__(self) -> int:
        self._item(0)
        return self._length

    def __iter__(self) -> Iterator[Any]:
        self._item(0)
        return iter([self._children[0]] * self._length)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What a function of modules returns that changes nothing."""
        return self._learn(nn.Identity)(*args, **kwargs)

    def __bool__(self) -> bool:
        return bool(self._learn(False))

    def __index__(self) -> int:
        value = self._learn(GENERIC_SIZE)
        return operator.index(value)

    __int__ = __index__

    def __neg__(self) -> Any:
        return -self._learn(GENERIC_SIZE)

    def __fspath__(self) -> str:
        raise FileNotFoundError(f"nothing states {'.'.join(self._path)}")

    def __float__(self) -> float:
        return float(self._learn(_FRACTION))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self._learn(GENERIC_SIZE), dtype=dtype)

    def __eq__(self, other: object) -> bool:
        return bool(self._learn(other) == other) if isinstance(other, (str, int, float)) else self is other

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo: object) -> Unknown:
        return self

    def __repr__(self) -> str:
        return repr(plain_value(self))


def _calculation(name: str, *, is_reversed: bool = False) -> Callable[[Unknown, Any], Any]:
    calculate = getattr(operator, name)

    def method(self: Unknown, other: Any) -> Any:
        if isinstance(other, Unknown):
            other = other._learn(GENERIC_SIZE)
        value = self._learn(_FRACTION if isinstance(other, float) else GENERIC_SIZE)
        return calculate(other, value) if is_reversed else calculate(value, other)

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Unknown, f"__{_name}__", _calculation(_name))
    setattr(Unknown, f"__r{_name}__", _calculation(_name, is_reversed=True))


def _order(name: str) -> Callable[[Unknown, Any], Any]:
    calculate = _calculation(name)

    def method(self: Unknown, other: Any) -> Any:
        if (
            self._value is None and isinstance(other, (int, float)) and other <= 1
        ):  # both a rate and a number are possible
            self._usual = _FRACTION
            return getattr(operator, name)(_FRACTION, other)
        return calculate(self, other)

    return method


for _name in ("lt", "le", "gt", "ge"):
    setattr(Unknown, f"__{_name}__", _order(_name))


def plain_value(value: Any) -> Any:
    """`value`, or of an unknown one what its uses show; most that nothing uses are switches, which are off."""
    if not isinstance(value, Unknown):
        return value
    if value._value is not None:
        return value._value
    if 0 in value._children:
        return [plain_value(value._children[0])] * value._length
    return {key: plain_value(item) for key, item in value._children.items()} or value._usual


def settle(model: nn.Module) -> None:
    """Give attributes of `model` and its modules that are unknown values, or contain some, the values that their uses showed.

    A layer keeps the sizes that it was made with, and reports are written from them.
    """
    for module in model.modules():
        attributes = vars(module)
        for name, value in list(attributes.items()):
            if _has_unknown(value):
                attributes[name] = _settled(value)


def _has_unknown(value: Any) -> bool:
    if type(value) in (tuple, list):
        return any(map(_has_unknown, value))
    return isinstance(value, Unknown) or (type(value) is dict and any(map(_has_unknown, value.values())))


def _settled(value: Any) -> Any:
    if type(value) in (tuple, list):
        return type(value)(map(_settled, value))
    return {key: _settled(item) for key, item in value.items()} if type(value) is dict else plain_value(value)


def learn_from(error: BaseException) -> None:
    """Take the unknown values of the function that raised `error`, because it got no number, for sizes."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)] if isinstance(error, TypeError) else []
    for frame in reversed(frames):
        values = [value for value in frame.f_locals.values() if isinstance(value, Unknown) and value._is_open]
        for value in values:
            value._learn(GENERIC_SIZE)
        if values:
            return
