"""Numbers that know from which unknowns they follow, and how fast they grow with each, so that a failed operation names these."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from profiler_kit.foreign import attributes_of


class SourcedInt(int):
    """A whole number. `slopes`: by how much it grows with each unknown that it is computed from."""

    slopes: Mapping[str, float]

    def __new__(cls, value: int, slopes: Mapping[str, float]) -> SourcedInt:
        """`value` with these slopes."""
        number = super().__new__(cls, value)
        number.slopes = slopes
        return number

    def __deepcopy__(self, memo: object) -> SourcedInt:
        return self

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


# (operator, its derivatives by the left and the right number)
_CALCULATIONS: Final[tuple[tuple[str, Callable[[int, int], tuple[float, float]]], ...]] = (
    ("add", lambda a, b: (1, 1)),
    ("sub", lambda a, b: (1, -1)),
    ("mul", lambda a, b: (b, a)),
    ("floordiv", lambda a, b: (1 / b, -a / b**2)),
)


def _method(name: str, slopes: Callable[[int, int], tuple[float, float]], *, is_reversed: bool) -> Callable[..., Any]:
    calculate = getattr(operator, name)

    def method(self: SourcedInt, other: Any) -> Any:
        plain = int(self)
        if not isinstance(other, int):
            return calculate(other, plain) if is_reversed else calculate(plain, other)
        left, right = (other, self) if is_reversed else (self, other)
        value = calculate(int(left), int(right))
        by_left, by_right = slopes(int(left), int(right))
        names = dict.fromkeys((*_slopes(left), *_slopes(right)))
        total = {n: by_left * _slopes(left).get(n, 0) + by_right * _slopes(right).get(n, 0) for n in names}
        return SourcedInt(value, total)

    return method


for _name, _derivatives in _CALCULATIONS:
    setattr(SourcedInt, f"__{_name}__", _method(_name, _derivatives, is_reversed=False))
    setattr(SourcedInt, f"__r{_name}__", _method(_name, _derivatives, is_reversed=True))


def _slopes(value: object) -> Mapping[str, float]:
    return value.slopes if isinstance(value, SourcedInt) else {}


def sourced(value: Any, name: str) -> Any:
    """`value` as the unknown `name`, if it is a whole number, a bool or a sequence of these."""
    if type(value) in (int, bool):
        return SourcedInt(value, {name: 1})
    return type(value)(sourced(item, name) for item in value) if type(value) in (list, tuple) else value


def numbers_in(value: object) -> Iterator[SourcedInt]:
    """The numbers with slopes in `value`: in nested lists and tuples, and among the attributes of an object."""
    if isinstance(value, SourcedInt):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from numbers_in(item)
    else:
        for item in (attributes_of(value) or {}).values():
            yield from numbers_in(item) if isinstance(item, (int, list, tuple)) else ()
