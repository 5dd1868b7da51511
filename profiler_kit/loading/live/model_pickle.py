"""Pickles a model with its functions for another process, and finds the attribute that cannot be pickled.

cloudpickle also pickles what belongs to no importable module: classes and functions of ``__main__``, of a notebook, and lambdas.
Tensors are written by torch.save, each storage once.
"""

from __future__ import annotations

import importlib.machinery
import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import IO, Any, Final

import cloudpickle
import torch
from torch import Tensor, nn

from profiler_kit.foreign import attribute_of
from profiler_kit.meta.compilation import unwrap_compiled
from profiler_kit.user_code.locations import one_line_message

_MAX_DEPTH: Final = 30
_HOOKS: Final = "_hooks"  # suffix of the attributes in which a module keeps its hooks
_HANDLES: Final = (io.IOBase, torch.cuda.Stream, torch.cuda.Event)  # bound to this process, though some can be pickled


class ModelPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles compiled modules as the modules inside, and refuses open files and CUDA streams."""

    def reducer_override(self, obj: Any) -> Any:
        """The reduced form of `obj`. Raises TypeError for an object that belongs to this process."""
        if isinstance(obj, _HANDLES):
            raise TypeError(f"cannot pickle {type(obj).__name__!r} object")
        if isinstance(obj, nn.Module):
            inner, compiles = unwrap_compiled(obj)
            if compiles is not None:
                return _same, (inner,)
        return super().reducer_override(obj)


class _TrialPickler(ModelPickler):
    """Pickles into nothing, and without the data of tensors."""

    def __init__(self) -> None:
        super().__init__(_Nowhere())

    def persistent_id(self, obj: Any) -> str | None:
        """A constant for storages, which always travel."""
        return "storage" if isinstance(obj, (torch.UntypedStorage, torch.storage.TypedStorage)) else None


class _Nowhere(io.RawIOBase):
    def write(self, data: Any) -> int:
        return len(data)


def _same(value: Any) -> Any:
    return value


def write_pickle(values: Mapping[str, Any], file: IO[bytes]) -> None:
    """Write `values` to `file`, in the format of torch.save.

    Raises:
        Exception: of the object that cannot be pickled; `find_unpicklable` names it.
    """
    pickler = SimpleNamespace(Pickler=ModelPickler, __name__="cloudpickle")
    with _unimportable_by_value(values), _without_checksums():
        torch.save(dict(values), file, pickle_module=pickler)


def find_unpicklable(values: Mapping[str, Any]) -> tuple[str, Any, str] | None:
    """The path, the value and the error of the first innermost object in `values` that cannot be pickled; None if all can."""
    with _unimportable_by_value(values):
        for name, value in values.items():
            reason = _refusal(value)
            if reason is not None:
                return _innermost(name, value, reason, {id(value)}, 0)
    return None


def _refusal(value: Any) -> str | None:
    """Why `value` cannot be pickled; None if it can."""
    try:
        _TrialPickler().dump(value)
    except RecursionError:
        return "it is nested too deeply"
    except Exception as error:  # noqa: BLE001 the __reduce__ of any class may raise anything
        return one_line_message(error)
    return None


def _innermost(path: str, value: Any, reason: str, visited: set[int], depth: int) -> tuple[str, Any, str]:
    if depth < _MAX_DEPTH:
        for child_path, child in _children(path, value):
            if id(child) in visited:
                continue
            visited.add(id(child))
            child_reason = _refusal(child)
            if child_reason is not None:
                return _innermost(child_path, child, child_reason, visited, depth + 1)
    return path, value, reason


def _children(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The objects inside `value`, with their paths."""
    if isinstance(value, Tensor):
        return
    if isinstance(value, nn.Module):
        value = unwrap_compiled(value)[0]
        for name, child in value._modules.items():
            yield f"{path}.{name}", child
        for name, child in vars(value).items():
            if name.endswith(_HOOKS) and isinstance(child, Mapping):
                for hook in child.values():
                    yield f"{path} ({name.strip('_').removesuffix('s').replace('_', ' ')})", hook
            elif name not in ("_modules", "_parameters", "_buffers"):
                yield f"{path}.{name}", child
    elif isinstance(value, Mapping):
        for key, child in value.items():
            yield f"{path}[{key!r}]", child
    elif isinstance(value, (list, tuple, set, frozenset)):
        for position, child in enumerate(value):
            yield f"{path}[{position}]", child
    elif isinstance(value, MethodType):
        yield f"{path}.__self__", value.__self__
    elif isinstance(value, FunctionType):
        yield from _variables(path, value)
    elif isinstance(value, type):
        for name, child in vars(value).items():
            if isinstance(child, FunctionType):
                yield from _variables(f"{value.__name__}.{name}", child)
    elif hasattr(value, "__dict__") and not isinstance(value, ModuleType):
        for name, child in vars(value).items():
            yield f"{path}.{name}", child


def _variables(path: str, function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The variables of outer functions and the globals that `function` uses."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f"{path} (variable {name})", cell.cell_contents
        except ValueError:  # a variable that has no value yet
            continue
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield f"{path} (global {name})", function.__globals__[name]


@contextmanager
def _without_checksums() -> Iterator[None]:
    """Write files without checksums inside the block: they take several times as long as the writing."""
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)


@contextmanager
def _unimportable_by_value(values: Mapping[str, Any]) -> Iterator[None]:
    """Pickle classes and functions of modules that another process cannot import by value inside the block."""
    names = {name for value in values.values() for name in _module_names(value)}
    with ExitStack() as stack:
        for name in sorted(names):
            module = sys.modules.get(name)
            if not isinstance(module, ModuleType) or name == "__main__" or _is_importable(name):
                continue
            if module.__name__ not in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.register_pickle_by_value(module)
                stack.callback(cloudpickle.unregister_pickle_by_value, module)
        yield


def _module_names(value: Any) -> Iterator[str]:
    """The modules that define `value`, and the classes of its modules if it is an nn.Module."""
    functions: list[Any] = [value, type(value)]
    if isinstance(value, nn.Module):
        functions += [base for module in value.modules() for base in type(module).__mro__]
    for function in functions:
        name = attribute_of(function, "__module__", str)
        if name is not None and name.partition(".")[0] not in ("torch", "builtins"):
            yield name


def _is_importable(name: str) -> bool:
    """Whether a fresh process with the same ``sys.path`` finds the top-level package of module `name`."""
    top = name.partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names:
        return True
    if importlib.machinery.PathFinder.find_spec(top) is not None:
        return True
    # an editable install has a finder of its own, which every process gets
    return any(
        finder.find_spec(top, None) is not None
        for finder in sys.meta_path
        if attribute_of(finder, "__module__", str, "").startswith("__editable__") and hasattr(finder, "find_spec")
    )
