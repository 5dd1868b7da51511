"""An imported target to the object that is or makes its model. Two candidates at one step are an error, never a choice."""

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
from profiler_kit.loading.command import next_line, plain_line
from profiler_kit.loading.construct import missing_arguments
from profiler_kit.loading.forms import is_model
from profiler_kit.loading.place import a_kind
from profiler_kit.loading.source import Source
from profiler_kit.loading.syntax import FACTORIES, binding_lines, nearby_models, root_classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An object that is a model, or makes one when called; `line` is where the file binds its name."""

    name: str
    value: Any
    line: int | None

    @property
    def is_model(self) -> bool:
        """Whether it is a model already."""
        return is_model(self.value)


def resolve(source: Source, arguments: Mapping[str, Any]) -> Candidate:
    """The candidate that the target names, or the only one of its file. `arguments` are the ``--kw``. Raises TargetError."""
    if source.attr is not None:
        return _named(source, source.attr)
    lines = binding_lines(source.tree) if source.tree is not None else {}
    names = vars(source.module)
    if is_model(names.get("model")):
        return Candidate(name="model", value=names["model"], line=lines.get("model"))
    factories = [
        Candidate(name=name, value=names[name], line=lines.get(name))
        for name in FACTORIES
        if callable(names.get(name)) and not isinstance(names[name], (nn.Module, ModuleType))
    ]
    ready = [factory for factory in factories if not missing_arguments(factory.value, arguments)]
    classes = {
        name
        for name, value in names.items()
        if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == source.module.__name__
    }
    roots = root_classes(source.tree, classes) if source.tree is not None else tuple(sorted(classes))
    for step in (ready, [Candidate(name=name, value=names[name], line=lines.get(name)) for name in roots], factories):
        if len(step) == 1:
            return step[0]
        if step:
            raise _several(source, step)
    raise _none(source)


def _several(source: Source, candidates: list[Candidate]) -> TargetError:
    listed = ", ".join(f"{c.name} (line {c.line})" if c.line else c.name for c in candidates)
    return TargetError(
        f"{len(candidates)} candidate models: {listed}",
        where=source.at(None),
        hint=f"pick one: {next_line(source.spec, target=f'{source.name}:{candidates[0].name}')}",
    )


def _none(source: Source) -> TargetError:
    message = "no model: no nn.Module class, no 'model', no get_model()"
    if source.file is None:
        return TargetError(message, where=source.name, hint=plain_line(source.spec, f"{source.name}:Net"))
    near = nearby_models(source.file.parent, source.file)
    if not near:
        return TargetError(
            message,
            where=source.at(None),
            hint=f"give the file that defines the model: {plain_line(source.spec, 'my_model.py')}",
        )
    path = Path(source.spec.spec).parent / near[0]
    return TargetError(
        f"{message}; nearest: {near[0]}", where=source.at(None), hint=next_line(source.spec, target=str(path))
    )


def _named(source: Source, attr: str) -> Candidate:
    value: Any = source.module
    done: list[str] = []
    for part in attr.split("."):
        if not hasattr(value, part):
            raise _no_attribute(source, value, part, done)
        value = getattr(value, part)
        done.append(part)
    line = binding_lines(source.tree).get(attr.split(".")[0]) if source.tree is not None else None
    is_class = isinstance(value, type)
    if is_model(value) or (is_class and issubclass(value, nn.Module)) or (callable(value) and not is_class):
        return Candidate(name=attr, value=value, line=line)
    kind = "a class, but no nn.Module" if is_class else a_kind(value)
    raise TargetError(
        f"{attr} is {kind}, not a model nor a function that returns one",
        where=source.at(line),
        hint=_other_names(source, attr),
    )


def _no_attribute(source: Source, owner: object, part: str, done: list[str]) -> TargetError:
    names = [name for name in dir(owner) if not name.startswith("__")]
    near = difflib.get_close_matches(part, names, n=3, cutoff=0.5)
    said = f"; nearest: {', '.join(near)}" if near else ""
    target = f"{source.name}:{'.'.join([*done, near[0]])}" if near else source.name
    return TargetError(
        f"has no {'.'.join([*done, part])!r}{said}", where=source.at(None), hint=next_line(source.spec, target=target)
    )


def _other_names(source: Source, attr: str) -> str:
    models = [
        name
        for name, value in vars(source.module).items()
        if name != attr
        and (isinstance(value, nn.Module) or (isinstance(value, type) and issubclass(value, nn.Module)))
        and getattr(value, "__module__", "") == source.module.__name__
    ]
    return next_line(source.spec, target=f"{source.name}:{models[0] if models else 'Net'}")


def parse_arguments(texts: tuple[str, ...]) -> dict[str, Any]:
    """``--kw k=v`` texts as keyword arguments: Python literals, else text. Raises UsageError."""
    arguments: dict[str, Any] = {}
    for text in texts:
        name, equals, written = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--kw {text}: not name=value", hint="write --kw width=64")
        if name in arguments:
            raise UsageError(f"--kw {name}=... is given twice", hint="give each argument once")
        try:
            arguments[name] = ast.literal_eval(written)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            if written.lower() in ("true", "false", "none"):  # as text it would count as true
                raise UsageError(
                    f"--kw {text}: {written!r} is text, not a Python literal",
                    hint=f"write --kw {name}={written.capitalize()}",
                ) from None
            arguments[name] = written
    return arguments
