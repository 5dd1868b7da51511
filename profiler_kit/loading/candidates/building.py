"""Builds a model by calling a class or function, and explains why a call fails."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from profiler_kit.errors import KitError, TargetError, UsageError
from profiler_kit.loading.candidates.signatures import MissingArgumentsError, missing_arguments, named_parameters
from profiler_kit.loading.command import next_command
from profiler_kit.loading.forms import BuiltModel, is_model
from profiler_kit.loading.scripts.import_errors import import_failure
from profiler_kit.loading.scripts.placeholders import UnavailableError, missing_package
from profiler_kit.loading.scripts.refused_downloads import without_downloads
from profiler_kit.loading.scripts.side_effects import SideEffectError
from profiler_kit.meta.device_moves import moves_redirected
from profiler_kit.meta.values import MAX_INTEGERS
from profiler_kit.records.notes import Note
from profiler_kit.records.target import TargetSpec
from profiler_kit.user_code.boundary import user_boundary
from profiler_kit.user_code.locations import is_out_of_memory, one_line_message, type_with_article, user_place

_CONSTRUCTORS: Final = _device_constructors()
_MOVES: Final = (Tensor.to, Tensor.cuda, Tensor.cpu)


def check_arguments(
    spec: TargetSpec, name: str, factory: Callable[..., Any], arguments: Mapping[str, Any], where: str
) -> None:
    """Check `arguments` against the signature of `factory`.

    Raises:
        UsageError: `factory` has no parameter of this name.
        TargetError: a required argument is missing.
    """
    check_names(spec, name, factory, arguments, where)
    missing = missing_arguments(factory, arguments)
    if missing:
        raise missing_error(spec, name, MissingArgumentsError(missing), where)


def check_names(
    spec: TargetSpec, name: str, factory: Callable[..., Any] | None, arguments: Mapping[str, Any], where: str
) -> None:
    """Raise UsageError if `factory` has no parameter for one of `arguments`. Without a factory, nothing is checked."""
    if factory is None:
        return
    names, takes_any = named_parameters(factory)
    for argument in arguments:
        if argument not in names and not takes_any:
            matches = difflib.get_close_matches(argument, names, n=1)
            raise UsageError(
                f"{name}() has no parameter {argument!r}" + (f"; did you mean {matches[0]!r}?" if matches else ""),
                where=where,
                hint=f"use one of its parameters: {', '.join(names)}" if names else f"omit --kw {argument}=...",
            )


def missing_error(
    spec: TargetSpec, name: str, missing: MissingArgumentsError, where: str, alternative: str | None = None
) -> TargetError:
    """The error for a call without required arguments. `alternative`: a target that needs no arguments, for the hint."""
    package = missing_package(missing.error) if missing.error is not None else None
    if package is not None:
        return import_failure(spec, None, package)
    fallback = f"run {next_command(spec, target=alternative)}, or " if alternative else ""
    reason = f"; {missing.reason}" if missing.reason else ""
    return TargetError(
        f"{name}() needs {', '.join(missing.names)}{reason}",
        where=where,
        hint=f"{fallback}define a function get_model() that returns it with its arguments",
    )


def uses_missing_package(error: BaseException) -> bool:
    """Whether a missing package caused the error."""
    return missing_package(error) is not None


def construct(spec: TargetSpec, name: str, call: Callable[[], Any], where: str, *, on_meta: bool) -> BuiltModel:
    """The model that `call` returns: with `on_meta` on the meta device if possible, otherwise on the CPU.

    Raises:
        TargetError: `call` raised an exception or returned something else. Out-of-memory errors pass through.
    """
    notes: tuple[Note, ...] = ()
    for context in (_on_meta, _large_on_meta) if on_meta else ():
        try:
            with user_boundary(), context():
                return _built_model(name, without_downloads(call), where)
        except KitError:
            raise
        except (Exception, SystemExit) as error:
            if uses_missing_package(error):
                raise _failure(spec, name, error, where) from error
            reason = f"{name}() fails on meta tensors ({one_line_message(error)})"
            notes = (Note(subject="model", text=f"built on the CPU, because {reason}"),)
    try:
        with user_boundary():
            built = _built_model(name, without_downloads(call), where)
    except KitError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise _failure(spec, name, error, where) from error
    return replace(built, notes=notes)


@contextlib.contextmanager
def _on_meta() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]), torch.device("meta"), moves_redirected(torch.device("meta")):
        yield


@contextlib.contextmanager
def _large_on_meta() -> Iterator[None]:
    """Weights on meta, and small tensors with values, which constructors read: schedules, rates of layers, masks."""
    with torch.random.fork_rng(devices=[]), moves_redirected(torch.device("cpu")), _LargeOnMeta():
        yield


class _LargeOnMeta(TorchFunctionMode):
    """Creates tensors of more than `MAX_INTEGERS` elements on meta, where moves leave them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        words = dict(kwargs or {})
        if func in _MOVES and args[0].is_meta:
            return args[0]
        if func not in _CONSTRUCTORS or words.get("device") is not None:
            return func(*args, **words)
        shaped = func(*args, **{**words, "device": "meta"})
        return shaped if shaped.numel() > MAX_INTEGERS else func(*args, **words)


def _failure(spec: TargetSpec, name: str, error: BaseException, where: str) -> TargetError:
    unavailable = error if isinstance(error, UnavailableError) else missing_package(error)
    if unavailable is not None:
        return import_failure(spec, None, unavailable)
    hint = "fix it there, or pass other arguments with --kw NAME=VALUE"
    if isinstance(error, SideEffectError) and spec.sliced:
        hint = f"allow it: {next_command(replace(spec, sliced=False))}"
    return TargetError(f"{name}() raised {one_line_message(error)}", where=user_place(error) or where, hint=hint)


class NotAModelError(Exception):
    """A call returned something else than a model."""


def _built_model(name: str, value: object, where: str) -> BuiltModel:
    if is_model(value):
        return BuiltModel(model=value)
    if isinstance(value, tuple) and len(value) == 2 and is_model(value[0]):
        return BuiltModel(model=value[0], inputs=value[1])
    raise TargetError(
        f"{name}() returned {type_with_article(value)}",
        where=where,
        hint="return the module, or (module, inputs)",
    ) from NotAModelError()
