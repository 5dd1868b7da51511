"""Reads attributes of objects that are not ours: modules, classes and objects of other packages, which may answer anything.

A module may compute its attributes, a lazy proxy may import a package, a mock answers every name, and any of them may raise.
"""

from __future__ import annotations

import importlib.metadata
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar, overload

T = TypeVar("T")


@overload
def attribute_of(value: object, name: str, kind: type[T]) -> T | None: ...
@overload
def attribute_of(value: object, name: str, kind: type[T], default: T) -> T: ...
def attribute_of(value: object, name: str, kind: type[T], default: T | None = None) -> T | None:
    """The attribute `name` of `value` if it is a `kind`; else `default`, also if reading it raises an exception."""
    attribute = _result(lambda: getattr(value, name), None)
    return attribute if issubclass(type(attribute), kind) else default


def has_class(value: object) -> bool:
    """Whether `isinstance` works with `value`: a proxy may raise an exception when its class is read."""
    return attribute_of(value, "__class__", type) is not None


def attributes_of(value: object) -> dict[str, Any] | None:
    """The ``__dict__`` of `value`, without its ``__getattr__`` or ``__getattribute__``; None if it has none."""
    base: Any = threading.local if issubclass(type(value), threading.local) else object  # has one for each thread
    attributes = _result(lambda: base.__getattribute__(value, "__dict__"), None)  # a class may define it as a property
    return attributes if issubclass(type(attributes), dict) else None


def loaded_modules() -> Iterator[tuple[str, ModuleType]]:
    """The modules in ``sys.modules`` with their names; without other objects that programs put there."""
    for name, module in list(sys.modules.items()):
        if isinstance(name, str) and issubclass(type(module), ModuleType):
            yield name, module


def module_places(module: object) -> tuple[str, ...]:
    """The file of `module` and, for a package, its folders."""
    folders: list[Any] = _result(
        lambda: list(getattr(module, "__path__", ())), []
    )  # a namespace package has its own kind of list
    places = [attribute_of(module, "__file__", str), *folders]
    return tuple(place for place in places if issubclass(type(place), str))


def installed_version(package: str) -> str | None:
    """The version of an installed `package`; None if it is not installed, or if its metadata has no version."""
    version = _result(lambda: importlib.metadata.version(package), None)
    return version if issubclass(type(version), str) else None


def _result(read: Callable[[], T], default: T) -> T:
    """The result of `read`; `default` if the code behind it raises anything, as ``SystemExit`` or the panic of an extension."""
    try:
        return read()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return default
