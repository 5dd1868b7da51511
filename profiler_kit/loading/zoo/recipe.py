"""How a zoo's model is made and what it is fed."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from torch import nn

from profiler_kit.errors import TargetError
from profiler_kit.loading.batch import Forward
from profiler_kit.loading.command import next_line
from profiler_kit.loading.inputs import InputText
from profiler_kit.loading.place import first_line
from profiler_kit.records.target import TargetSpec

Inputs = tuple[tuple[InputText, ...], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A zoo's model: its class or builder, where it is described, and its inputs.

    ``inputs(model, forward, given)`` returns the texts of the inputs, those `given` in their places, and further keyword
    arguments that are no tensors. `source` says in a sentence where the inputs' sizes are from. `listed` models take the
    inputs as one list. The model is made within `surroundings`.
    """

    name: str
    maker: Callable[[], nn.Module]
    where: str
    source: str
    inputs: Callable[[nn.Module, Forward, tuple[InputText, ...]], Inputs]
    notes: tuple[str, ...] = ()
    listed: bool = False
    surroundings: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext


def no_model(spec: TargetSpec, zoo: str, name: str, names: Sequence[str]) -> TargetError:
    """The error for a `name` that is none of the `names` of the zoo's models."""
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    return TargetError(
        f"{zoo} has no model {name!r}" + (f"; nearest: {', '.join(near)}" if near else ""),
        where=spec.spec,
        hint=next_line(spec, target=f"{zoo}:{near[0] if near else 'resnet50'}"),
    )


def imported(package: str, target: str, install: str) -> Any:
    """The zoo's package. Raises TargetError that tells what to `install`, or why it does not import."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            message = f"{package} is not installed"
        else:
            message = f"{package} does not import: {first_line(error)}"
        raise TargetError(
            message, where=target, hint=f"without changing your torch: {sys.executable} -m pip install {install}"
        ) from error
