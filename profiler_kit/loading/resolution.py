"""Finds the model, or the class or function that builds it, in an imported target. Ambiguity is an error."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading.command import bare_command, next_command
from profiler_kit.loading.construction import missing_arguments
from profiler_kit.loading.forms import is_model
from profiler_kit.loading.import_errors import import_failure
from profiler_kit.loading.scripts.placeholders import Placeholder, placeholder_error
from profiler_kit.loading.source import Source
from profiler_kit.loading.syntax import FACTORIES, definition_lines, nearby_models, root_classes
from profiler_kit.loading.user_locations import type_with_article


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model, or a class or function that builds one; `line` is the line where the file defines its name."""

    name: str
    value: Any
    line: int | None

    @property
    def is_model(self) -> bool:
        """Whether `value` is a model, and not a class or function that builds one."""
        return is_model(self.value)


def resolve(source: Source, arguments: Mapping[str, Any]) -> Candidate:
    """The candidate that the target names, or the only candidate of its file. Raises TargetError.

    `arguments` are those of ``--kw``.
    """
    if source.attr is not None:
        return _named(source, source.attr)
    lines = definition_lines(source.tree) if source.tree is not None else {}
    names = source.names
    if is_model(names.get("model")):
        return Candidate(name="model", value=names["model"], line=lines.get("model"))
    factories = [
        Candidate(name=name, value=names[name], line=lines.get(name))
        for name in FACTORIES
        if callable(names.get(name)) and not isinstance(names[name], (nn.Module, ModuleType))
    ]
    callable_now = [factory for factory in factories if not missing_arguments(factory.value, arguments)]
    classes = {
        name
        for name, value in names.items()
        if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == source.module.__name__
    }
    roots = root_classes(source.tree, classes) if source.tree is not None else tuple(sorted(classes))
    for group in (
        callable_now,
        [Candidate(name=name, value=names[name], line=lines.get(name)) for name in roots],
        factories,
    ):
        if len(group) == 1:
            return group[0]
        if group:
            raise _ambiguous(source, group)
    raise _no_model(source)


def _ambiguous(source: Source, candidates: list[Candidate]) -> TargetError:
    listed = ", ".join(f"{c.name} (line {c.line})" if c.line else c.name for c in candidates)
    return TargetError(
        f"{len(candidates)} candidate models: {listed}",
        where=source.at(None),
        hint=f"select one: {next_command(source.spec, target=f'{source.name}:{candidates[0].name}')}",
    )


def _no_model(source: Source) -> TargetError:
    if source.failures:  # the first reason is the most likely one
        raise import_failure(source.spec, source.file, source.failures[0].error)
    message = "no model in this file: no nn.Module class, no 'model', no get_model()"
    if source.file is None:
        return TargetError(message, where=source.name, hint=bare_command(source.spec, f"{source.name}:Net"))
    suggestions = nearby_models(source.file.parent, source.file)
    if not suggestions:
        return TargetError(
            message,
            where=source.at(None),
            hint=f"use the file that defines the model: {bare_command(source.spec, 'my_model.py')}",
        )
    path = Path(source.spec.spec).parent / suggestions[0]
    return TargetError(
        f"{message}; did you mean {suggestions[0]}?",
        where=source.at(None),
        hint=next_command(source.spec, target=str(path)),
    )


def _named(source: Source, attr: str) -> Candidate:
    value: Any = source.module
    resolved: list[str] = []
    for part in attr.split("."):
        if not hasattr(value, part):
            raise _no_attribute(source, value, part, resolved)
        value = getattr(value, part)
        resolved.append(part)
    if isinstance(value, Placeholder):
        raise import_failure(source.spec, source.file, placeholder_error(value))
    line = definition_lines(source.tree).get(attr.split(".")[0]) if source.tree is not None else None
    is_class = isinstance(value, type)
    if is_model(value) or (is_class and issubclass(value, nn.Module)) or (callable(value) and not is_class):
        return Candidate(name=attr, value=value, line=line)
    problem = (
        "a class, but not an nn.Module"
        if is_class
        else f"{type_with_article(value)}, not a model or a function that returns one"
    )
    raise TargetError(
        f"{attr} is {problem}",
        where=source.at(line),
        hint=_other_names(source, attr),
    )


def _no_attribute(source: Source, owner: object, part: str, resolved: list[str]) -> TargetError:
    names = [name for name in dir(owner) if not name.startswith("__")]
    matches = difflib.get_close_matches(part, names, n=3, cutoff=0.5)
    suggestion = f"; did you mean {' or '.join(matches)}?" if matches else ""
    target = f"{source.name}:{'.'.join([*resolved, matches[0]])}" if matches else source.name
    return TargetError(
        f"no {'.'.join([*resolved, part])!r} in this file{suggestion}",
        where=source.at(None),
        hint=next_command(source.spec, target=target),
    )


def _other_names(source: Source, attr: str) -> str:
    models = [
        name
        for name, value in vars(source.module).items()
        if name != attr
        and (isinstance(value, nn.Module) or (isinstance(value, type) and issubclass(value, nn.Module)))
        and getattr(value, "__module__", "") == source.module.__name__
    ]
    return next_command(source.spec, target=f"{source.name}:{models[0] if models else 'Net'}")


def parse_arguments(texts: tuple[str, ...]) -> dict[str, Any]:
    """Parse ``--kw NAME=VALUE`` texts into keyword arguments: Python literals, otherwise strings. Raises UsageError."""
    arguments: dict[str, Any] = {}
    for text in texts:
        name, equals, literal = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--kw {text}: not NAME=VALUE", hint="write it like --kw width=64")
        if name in arguments:
            raise UsageError(f"--kw {name}=... is given twice", hint="use each argument once")
        try:
            arguments[name] = ast.literal_eval(literal)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            if literal.lower() in ("true", "false", "none"):  # a string would count as true
                raise UsageError(
                    f"--kw {text}: {literal!r} is not a Python literal",
                    hint=f"write --kw {name}={literal.capitalize()}",
                ) from None
            arguments[name] = literal
    return arguments
