"""Builds a model by calling a class or function, and explains why a call fails."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from profiler_kit.errors import KitError, TargetError, UsageError
from profiler_kit.loading.boundary import user_boundary
from profiler_kit.loading.candidates.signatures import MissingArgumentsError, missing_arguments, named_parameters
from profiler_kit.loading.command import next_command
from profiler_kit.loading.device_moves import moves_redirected
from profiler_kit.loading.forms import BuiltModel, is_model
from profiler_kit.loading.import_errors import import_failure
from profiler_kit.loading.scripts.placeholders import UnavailableError
from profiler_kit.loading.user_locations import is_out_of_memory, one_line_message, type_with_article, user_place
from profiler_kit.records.target import TargetSpec


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
    if missing.error is not None and uses_missing_package(missing.error):
        package = next(
            cause for cause in causes(missing.error) if isinstance(cause, (UnavailableError, ModuleNotFoundError))
        )
        return import_failure(spec, None, package)
    add = [word for parameter in missing.names for word in ("--kw", f"{parameter}=...")]
    fallback = f"run {next_command(spec, target=alternative)}" if alternative else "define get_model()"
    reason = f"; {missing.reason}" if missing.reason else ""
    return TargetError(
        f"{name}() needs {', '.join(missing.names)}{reason}",
        where=where,
        hint=f"run {next_command(spec, add=add)}, or {fallback}",
    )


def uses_missing_package(error: BaseException) -> bool:
    """Whether the error, or an exception that caused it, is a missing package."""
    return any(isinstance(cause, ModuleNotFoundError) for cause in causes(error))


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and the exceptions that caused it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.cause if isinstance(cause, UnavailableError) and cause.cause is not None else cause.__cause__


def construct(spec: TargetSpec, name: str, call: Callable[[], Any], where: str, *, on_meta: bool) -> BuiltModel:
    """The model that `call` returns: with `on_meta` on the meta device if possible, otherwise on the CPU.

    Raises:
        TargetError: `call` raised an exception or returned something else. Out-of-memory errors pass through.
    """
    notes: tuple[str, ...] = ()
    if on_meta:
        try:
            with (
                user_boundary(),
                torch.random.fork_rng(devices=[]),
                torch.device("meta"),
                moves_redirected(torch.device("meta")),
            ):
                return _built_model(name, call(), where)
        except KitError:
            raise
        except (Exception, SystemExit) as error:
            # Not an error yet: a constructor that reads values works on a real device only.
            notes = (f"model: built on the CPU, because {name}() fails on meta tensors ({one_line_message(error)})",)
            if uses_missing_package(error):
                raise _failure(spec, name, error, where) from error
    try:
        with user_boundary():
            built = _built_model(name, call(), where)
    except KitError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise _failure(spec, name, error, where) from error
    return replace(built, notes=notes)


def _failure(spec: TargetSpec, name: str, error: BaseException, where: str) -> TargetError:
    if isinstance(error, UnavailableError) or uses_missing_package(error):
        return import_failure(spec, None, error)
    return TargetError(
        f"{name}() raised {one_line_message(error)}",
        where=user_place(error) or where,
        hint="the call fails in plain Python, too: fix it there, or pass other arguments with --kw NAME=VALUE",
    )


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
