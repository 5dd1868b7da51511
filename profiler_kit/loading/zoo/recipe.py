"""Recipes of zoo models: how to build one, and its inputs."""

from __future__ import annotations

import contextlib
import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from torch import nn

from profiler_kit.command_lines import install_command
from profiler_kit.errors import TargetError
from profiler_kit.loading.command import next_command
from profiler_kit.loading.inputs import InputText
from profiler_kit.meta.batch import Forward
from profiler_kit.records.notes import Note
from profiler_kit.records.target import TargetSpec
from profiler_kit.user_code.locations import one_line_message

Inputs = tuple[tuple[InputText, ...], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to build a zoo model, and its inputs.

    ``inputs(model, forward, texts)`` returns the texts of all inputs, including the user's ``-i`` `texts`, and keyword
    arguments that are not tensors. `source` names the origin of the input sizes, for notes. Models with `takes_list` take
    their inputs as one list. `factory` runs inside the `surroundings` context.
    """

    name: str
    factory: Callable[[], nn.Module]
    where: str
    source: str
    inputs: Callable[[nn.Module, Forward, tuple[InputText, ...]], Inputs]
    notes: tuple[Note, ...] = ()
    takes_list: bool = False
    surroundings: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext


def unknown_model_error(spec: TargetSpec, zoo: str, name: str, names: Sequence[str]) -> TargetError:
    """The error for a `name` that is not in `names`, the names of the zoo's models."""
    matches = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    return TargetError(
        f"{zoo} has no model {name!r}" + (f"; did you mean {' or '.join(matches)}?" if matches else ""),
        where=spec.spec,
        hint=next_command(spec, target=f"{zoo}:{matches[0] if matches else 'resnet50'}"),
    )


def import_package(package: str, target: str, install: Sequence[Sequence[str]]) -> Any:
    """Import the zoo's package. Raises TargetError with the commands that `install` packages, or with the import error."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            message = f"{package} is not installed"
        else:
            message = f"{package} cannot be imported: {one_line_message(error)}"
        raise TargetError(
            message,
            where=target,
            hint=f"install it: {' && '.join(install_command(*words) for words in install)}",
        ) from error
