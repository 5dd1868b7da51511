"""The objects that a call of user code can reach: through attributes, containers, closures, defaults, classes and globals.

Only real storage is read. No code of the objects runs, so that lazy proxies and objects that answer every name do no harm.
"""

from __future__ import annotations

import array
import collections
import contextvars
import dis
import functools
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, Final

import torch
from torch import Tensor, nn

from profiler_kit.foreign import attribute_of, attributes_of
from profiler_kit.user_code.locations import is_user_code

Children = Callable[[Any], Iterable[Any]]

LRU_CACHE: Final[Any] = type(functools.lru_cache(len))
_LEAVES: Final = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented), CodeType,
        torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
    }
)  # fmt: skip
_CONTAINERS: Final = (list, tuple, set, frozenset, collections.deque)
_CAN_BE_EMPTY: Final = frozenset({list, dict, set, collections.OrderedDict})
# The standard library's classes that hold the data of their user. Others manage the process: loggers, threads, files.
_DATA_MODULES: Final = frozenset(
    {"_thread", "argparse", "array", "collections", "functools", "queue", "random", "types"}
)
# An object of a package that has one of these also serves other threads and programs, so its state is not the user's alone.
_LOCKS: Final = (
    type(threading.Lock()), type(threading.RLock()), threading.Thread, threading.Condition, threading.Event, socket.socket,
)  # fmt: skip
_QUEUES: Final = (queue.Queue, queue.SimpleQueue)
_SHARED: Final = (*_LOCKS, *_QUEUES)
_WITHOUT_CHILDREN: Final = (bytearray, array.array, torch.Generator, ModuleType, queue.SimpleQueue, *_LOCKS)
# Operators belong to the process. Torch's dispatcher points to them without owning them: to take back an overload that a
# pass was the first to read would free it, and the next call would crash.
_OPERATORS: Final = ("torch._ops", "torch._library")
_PACKAGE: Final = str(Path(__file__).resolve().parent.parent)
_ASSIGNS: Final = frozenset({dis.opmap["STORE_GLOBAL"], dis.opmap["DELETE_GLOBAL"]})


def reachable(roots: Iterable[Any], *, into_code: bool = True, empty: list[Any] | None = None) -> Iterator[Any]:
    """Every object that code given `roots` can reach and that can hold state, each once; the roots first.

    The ``__dict__`` of an object is an object of its own. A function leads to its closure, its defaults and the globals
    that its code names, a class to its attributes. Not entered: modules, functions and classes of installed packages,
    and this package. Without `into_code`, functions and classes are not entered at all. `empty` receives the empty lists,
    dicts and sets: a module has a dozen, and to visit each would take most of the time.
    """
    leaves = set(_LEAVES)
    children_of: dict[type, Children] = {}
    visited: dict[int, Any] = {}  # alive, so that no other object gets the same id
    stack = [value for value in roots if type(value) not in leaves][::-1]
    while stack:
        value = stack.pop()
        if id(value) in visited:
            continue
        kind = type(value)
        children = children_of.get(kind)
        if children is None:
            children = _children_of(kind, into_code)
            if children is None:
                leaves.add(kind)
                continue
            children_of[kind] = children
        visited[id(value)] = value
        yield value
        held = []
        for child in children(value):
            kind = type(child)
            if kind in _CAN_BE_EMPTY and not child:
                if empty is not None:
                    empty.append(child)
            elif kind not in leaves:
                held.append(child)
        held.reverse()
        stack += held


def tensors_of(*roots: Any) -> list[Tensor]:
    """The distinct tensors that `roots` hold, at any depth of containers and objects."""
    return [value for value in reachable(roots, into_code=False) if issubclass(type(value), Tensor)]


def is_shared(kind: type) -> bool:
    """Whether a deep copy of an object must share its parts of `kind`, which cannot be copied: modules, locks, generators."""
    return issubclass(kind, (ModuleType, GeneratorType, threading.local, *_SHARED))


def slots_of(kind: type) -> tuple[MemberDescriptorType, ...]:
    """The descriptors of the ``__slots__`` of `kind` and its bases."""
    return tuple(
        member
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for member in vars(base).values()
        if type(member) is MemberDescriptorType
    )


def object_attributes(value: Any) -> dict[str, Any]:
    """The attributes that `value` stores, in its ``__dict__`` and its slots. None of its code runs."""
    attributes = dict(attributes_of(value) or {})
    for slot in slots_of(type(value)):
        try:
            attributes[slot.__name__] = slot.__get__(value)
        except AttributeError:  # a slot without a value
            continue
    return attributes


def is_iterator(kind: type) -> bool:
    """Whether objects of `kind` are generators or other iterators of Python itself, which cannot be set back."""
    return _module_of(kind) in ("builtins", "itertools") and _defines(kind, "__next__")


def state_methods(kind: type) -> tuple[Any, Any] | None:
    """``__getstate__`` and ``__setstate__`` of `kind`, if the standard library defines both; no other code runs."""
    for base in kind.__mro__[:-1]:
        if (methods := [vars(base).get(name) for name in ("__getstate__", "__setstate__")]) != [None, None]:
            root = _module_of(base).partition(".")[0]
            is_known = None not in methods and root in sys.stdlib_module_names and root != "__main__"
            return (methods[0], methods[1]) if is_known else None
    return None


def is_user_class(kind: type) -> bool:
    """Whether `kind` is defined in user code, as opposed to an installed package."""
    name = _module_of(kind)
    if name.partition(".")[0] in sys.stdlib_module_names and name != "__main__":
        return False
    return _is_user_file(attribute_of(sys.modules.get(name), "__file__", str) or "<no file>")


def named_globals(function: FunctionType) -> Iterator[tuple[dict[str, Any], frozenset[str], frozenset[str]]]:
    """The namespaces that a function of user code can name, with the names that it may read, and those that it may assign.

    These are its globals, and modules of user code among them, whose attributes have no names of their own in the code.
    """
    if not _is_user_file(function.__code__.co_filename):
        return
    names = _names(function.__code__)
    package = function.__globals__.get("__package__")
    spaces, entered = [function.__globals__], {id(function.__globals__)}
    for space in spaces:
        yield space, names, names if space is not function.__globals__ else _assigned_names(function.__code__)
        for name in names:
            module = space.get(name)
            if type(module) is not ModuleType:
                module = sys.modules.get(name) or (sys.modules.get(f"{package}.{name}") if package else None)
            if type(module) is ModuleType and id(vars(module)) not in entered:
                file = vars(module).get("__file__")
                if isinstance(file, str) and _is_user_file(file):
                    entered.add(id(vars(module)))
                    spaces.append(vars(module))


def _children_of(kind: type, into_code: bool) -> Children | None:
    """How to find the children of an object of `kind`; None if it holds no state."""
    parts: list[Children] = []
    if issubclass(kind, Tensor):
        parts.append(_attribute_values)
    elif issubclass(kind, dict):
        parts.append(_items)
    elif issubclass(kind, _CONTAINERS):
        parts.append(iter if kind in _CONTAINERS else _base_items)
    elif issubclass(kind, type):
        return _class_attributes if into_code else None
    elif kind is FunctionType:
        return _function_state if into_code else None
    elif kind in _PARTS:
        return _PARTS[kind]
    elif is_iterator(kind) or issubclass(kind, _WITHOUT_CHILDREN) or _module_of(kind).partition(".")[0] == "numpy":
        return _array_items if kind.__name__ == "ndarray" else _nothing
    if not _is_opaque(kind):
        parts.append(functools.partial(_instance_state, slots_of(kind), into_code, _is_own_state(kind)))
    if not parts:
        return _nothing if state_methods(kind) else None
    return parts[0] if len(parts) == 1 else lambda value: [child for part in parts for child in part(value)]


def _is_opaque(kind: type) -> bool:
    """Whether the attributes of an object of `kind` are not entered."""
    root = _module_of(kind).partition(".")[0]
    if root == "builtins" or issubclass(kind, BaseException):
        return True
    if root == "profiler_kit":  # its modules hold those of the user
        return not issubclass(kind, nn.Module)
    if root == "torch":  # a model, or a wrapper of a function such as a hook
        is_registered = _module_of(kind).startswith(_OPERATORS)
        return is_registered or (not issubclass(kind, nn.Module) and not _defines(kind, "__call__"))
    return root in sys.stdlib_module_names and root not in _DATA_MODULES and root != "__main__"


def _module_of(kind: type) -> str:
    return attribute_of(kind, "__module__", str, "")


def _defines(kind: type, method: str) -> bool:
    return any(method in vars(base) for base in kind.__mro__)


def _is_own_state(kind: type) -> bool:
    return issubclass(kind, (nn.Module, SimpleNamespace, queue.Queue)) or is_user_class(kind)


def _instance_state(
    slots: tuple[MemberDescriptorType, ...], into_code: bool, is_own: bool, value: Any
) -> Iterable[Any]:
    attributes = attributes_of(value)
    held = [] if attributes is None else [attributes]
    if is_own and not slots:
        return [*held, type(value)] if into_code else held
    for slot in slots:
        try:
            held.append(slot.__get__(value))
        except AttributeError:  # a slot without a value
            continue
    if not is_own and any(issubclass(type(item), _SHARED) for item in (*held, *(attributes or {}).values())):
        return ()
    return [*held, type(value)] if into_code else held


def _attribute_values(value: Any) -> Iterable[Any]:
    return (attributes_of(value) or {}).values()


def _nothing(value: Any) -> Iterable[Any]:
    return ()


def _array_items(value: Any) -> Iterable[Any]:
    return value.ravel().tolist() if value.dtype.hasobject else ()


def _items(value: dict[Any, Any]) -> Iterable[Any]:
    if not value:
        return ()
    values = list(dict.values(value))
    if type(next(dict.__iter__(value))) is not str:
        values += dict.keys(value)
    return values


def _base_items(value: Any) -> Iterable[Any]:
    """The items of a container, without an ``__iter__`` of its subclass."""
    base: Any = next(base for base in _CONTAINERS if issubclass(type(value), base))
    return list(base.__iter__(value))


def _class_attributes(kind: type) -> Iterable[Any]:
    return [*vars(kind).values(), *kind.__mro__[1:]] if is_user_class(kind) else ()


def _cell_content(cell: CellType) -> Iterable[Any]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # a variable that has no value yet
        return ()


def _function_state(function: FunctionType) -> Iterable[Any]:
    """What `function` holds; for a wrapper of a package, which may call user code, only its closure."""
    file = function.__code__.co_filename
    closure = function.__closure__ or ()
    if file.startswith(_PACKAGE):
        return ()
    if not _is_user_file(file):
        return closure
    state = [*closure, *(function.__defaults__ or ()), function.__kwdefaults__, vars(function)]
    for space, names, _ in named_globals(function):
        state += [space[name] for name in names if name in space]
    return state


_PARTS: Final[dict[type, Children]] = {
    CellType: _cell_content,
    MethodType: lambda method: (method.__self__, method.__func__),
    BuiltinFunctionType: lambda method: (method.__self__,),
    staticmethod: lambda method: (method.__func__,),
    classmethod: lambda method: (method.__func__,),
    property: lambda value: (value.fget, value.fset, value.fdel),
    functools.partial: lambda value: (value.func, value.args, value.keywords, vars(value)),
    LRU_CACHE: lambda cache: (vars(cache),),
    contextvars.ContextVar: lambda variable: (variable.get(None),),
}


@lru_cache(maxsize=4096)
def _is_user_file(file: str) -> bool:
    """Whether `file` is user code. Code without a file comes from a notebook, a prompt or ``exec``."""
    return not file.startswith("<frozen ") and (file.startswith("<") or is_user_code(file))


@lru_cache(maxsize=4096)
def _names(code: CodeType) -> frozenset[str]:
    """The names of globals, attributes and imports in `code` and in the functions that it defines."""
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return frozenset(code.co_names).union(*inner)


@lru_cache(maxsize=4096)
def _assigned_names(code: CodeType) -> frozenset[str]:
    """The globals that `code` and the functions that it defines assign or delete."""
    assigned = [_assigned_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    operations, extended = zip(code.co_code[::2], code.co_code[1::2], strict=True), 0
    names = set()
    for operation, argument in operations if not _ASSIGNS.isdisjoint(code.co_code[::2]) else ():
        index = extended | argument
        extended = index << 8 if operation == dis.EXTENDED_ARG else 0
        if operation in _ASSIGNS:
            names.add(code.co_names[index])
    return frozenset(names).union(*assigned)
