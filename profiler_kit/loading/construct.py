"""A class or function, with its ``--kw`` arguments, to a model on a device."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from profiler_kit.errors import KitError, TargetError, UsageError
from profiler_kit.loading.command import next_line
from profiler_kit.loading.forms import Built, is_model
from profiler_kit.loading.place import a_kind, first_line, is_out_of_memory, user_place
from profiler_kit.records.target import TargetSpec


def missing_arguments(maker: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The parameters of `maker` that have no default and that `arguments` do not give."""
    return tuple(
        p.name
        for p in _parameters(maker)
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in arguments
    )


def _parameters(maker: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(maker).parameters.values())
    except (TypeError, ValueError):
        return []


def check_arguments(
    spec: TargetSpec,
    name: str,
    maker: Callable[..., Any],
    arguments: Mapping[str, Any],
    where: str,
    instead: str | None = None,
) -> None:
    """Raises UsageError for an argument `maker` does not take, TargetError for one it needs and was not given.

    `instead` is a target of the same file that needs no arguments, for the hint.
    """
    parameters = _parameters(maker)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for given in arguments:
        if given not in names and not takes_any and parameters:
            near = difflib.get_close_matches(given, names, n=1)
            raise UsageError(
                f"{name}() has no parameter {given!r}" + (f"; nearest: {near[0]}" if near else ""),
                where=where,
                hint=f"it takes {', '.join(names)}" if names else f"it takes none: leave out --kw {given}=...",
            )
    missing = missing_arguments(maker, arguments)
    if missing:
        add = [word for parameter in missing for word in ("--kw", f"{parameter}=...")]
        other = next_line(spec, target=instead) if instead else "define get_model()"
        raise TargetError(
            f"{name}() needs {', '.join(missing)}", where=where, hint=f"{next_line(spec, add=add)}  (or {other})"
        )


def construct(
    spec: TargetSpec, name: str, maker: Callable[..., Any], arguments: Mapping[str, Any], where: str, *, on_meta: bool
) -> Built:
    """What ``maker(**arguments)`` builds, on the meta device if asked for and possible, else on the CPU.

    Raises TargetError when it raises, or returns no model. An out-of-memory error goes through.
    """
    notes: tuple[str, ...] = ()
    if on_meta:
        try:
            with torch.random.fork_rng(devices=[]), torch.device("meta"):
                return _checked(name, maker(**arguments), where, spec)
        except KitError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001
            # Not an error yet: code that reads values while it builds only works on a real device.
            notes = (f"built on the CPU: {name}() does not run on meta tensors ({first_line(error)})",)
    try:
        built = _checked(name, maker(**arguments), where, spec)
    except KitError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise TargetError(
            f"{name}() raised {first_line(error)}",
            where=user_place(error) or where,
            hint=f"mend it, or change its arguments: {next_line(spec, add=() if spec.kwargs else ('--kw', 'name=...'))}",
        ) from error
    return replace(built, notes=notes)


def _checked(name: str, value: object, where: str, spec: TargetSpec) -> Built:
    if is_model(value):
        return Built(model=value)
    if isinstance(value, tuple) and len(value) == 2 and is_model(value[0]):
        return Built(model=value[0], inputs=value[1])
    raise TargetError(
        f"{name}() returned {a_kind(value)}",
        where=where,
        hint=f"return the module, or (module, inputs), then run {next_line(spec)}",
    )
