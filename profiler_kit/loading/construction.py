"""Builds a model by calling a class or function with its ``--kw`` arguments."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from profiler_kit.errors import KitError, TargetError, UsageError
from profiler_kit.loading.command import next_command
from profiler_kit.loading.device_moves import moves_redirected
from profiler_kit.loading.forms import BuiltModel, is_model
from profiler_kit.loading.user_locations import is_out_of_memory, one_line_message, type_with_article, user_place
from profiler_kit.records.target import TargetSpec


def missing_arguments(factory: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The parameters of `factory` without a default that are missing from `arguments`."""
    return tuple(
        p.name
        for p in _parameters(factory)
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in arguments
    )


def _parameters(factory: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        return []


def check_arguments(
    spec: TargetSpec,
    name: str,
    factory: Callable[..., Any],
    arguments: Mapping[str, Any],
    where: str,
    alternative: str | None = None,
) -> None:
    """Check `arguments` against the signature of `factory`.

    `alternative` is a target of the same file that needs no arguments, for the hint.

    Raises:
        UsageError: `factory` has no parameter of this name.
        TargetError: a required argument is missing.
    """
    parameters = _parameters(factory)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for argument in arguments:
        if argument not in names and not takes_any and parameters:
            matches = difflib.get_close_matches(argument, names, n=1)
            raise UsageError(
                f"{name}() has no parameter {argument!r}" + (f"; did you mean {matches[0]!r}?" if matches else ""),
                where=where,
                hint=f"use one of its parameters: {', '.join(names)}" if names else f"omit --kw {argument}=...",
            )
    missing = missing_arguments(factory, arguments)
    if missing:
        add = [word for parameter in missing for word in ("--kw", f"{parameter}=...")]
        fallback = f"run {next_command(spec, target=alternative)}" if alternative else "define get_model()"
        raise TargetError(
            f"{name}() needs {', '.join(missing)}",
            where=where,
            hint=f"run {next_command(spec, add=add)}, or {fallback}",
        )


def construct(
    spec: TargetSpec, name: str, factory: Callable[..., Any], arguments: Mapping[str, Any], where: str, *, on_meta: bool
) -> BuiltModel:
    """Build a model with ``factory(**arguments)``: with `on_meta` on the meta device if possible, otherwise on the CPU.

    Raises:
        TargetError: `factory` raised an exception or returned something else. Out-of-memory errors pass through.
    """
    notes: tuple[str, ...] = ()
    if on_meta:
        try:
            with torch.random.fork_rng(devices=[]), torch.device("meta"), moves_redirected(torch.device("meta")):
                return _built_model(name, factory(**arguments), where)
        except KitError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001
            # Not an error yet: a constructor that reads values works on a real device only.
            notes = (f"model: built on the CPU, because {name}() fails on meta tensors ({one_line_message(error)})",)
    try:
        built = _built_model(name, factory(**arguments), where)
    except KitError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise TargetError(
            f"{name}() raised {one_line_message(error)}",
            where=user_place(error) or where,
            hint="fix it, or change the arguments of --kw"
            if spec.kwargs
            else f"fix it, or pass other arguments: {next_command(spec, add=('--kw', 'name=...'))}",
        ) from error
    return replace(built, notes=notes)


def _built_model(name: str, value: object, where: str) -> BuiltModel:
    if is_model(value):
        return BuiltModel(model=value)
    if isinstance(value, tuple) and len(value) == 2 and is_model(value[0]):
        return BuiltModel(model=value[0], inputs=value[1])
    raise TargetError(
        f"{name}() returned {type_with_article(value)}",
        where=where,
        hint="return the module, or (module, inputs)",
    )
