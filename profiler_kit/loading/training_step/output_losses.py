"""Losses that a model returns: scalars anywhere in its output, and their paths, such as ``output[1]`` or ``output.loss``."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.user_code.locations import type_with_article

MAX_DEPTH: Final = 4  # of nested containers; real outputs have at most two levels
PLUS: Final = " + "
_STEP: Final = r"\.[A-Za-z_]\w*|\[[^\[\]]+\]"
_PATH: Final = rf"output(?:{_STEP})*"
_PATHS: Final = re.compile(rf"{_PATH}(?: *\+ *{_PATH})*\Z")
_TOTALS: Final = ("total_loss", "loss_total")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLoss:
    """A loss in an output: its path (`name`), its value, and why it was selected."""

    name: str
    value: Tensor
    reason: str


def is_output_path(name: str) -> bool:
    """Whether `name` selects a loss of the output: ``output``, ``output[1]``, ``output.loss``, or a sum of such paths."""
    return _PATHS.match(name) is not None


def select_loss(output: object, name: str) -> Tensor:
    """The value at the path `name` of `output`, or the sum of several paths. Raises TargetError for other values."""
    values = [_at_path(output, path.strip()) for path in name.split("+")]
    return sum(values[1:], start=values[0])


def _at_path(output: object, path: str) -> Tensor:
    value: Any = output
    for step in re.findall(_STEP, path):
        try:
            value = _item(value, step.strip(".[]").strip("'\""))
        except (KeyError, IndexError, AttributeError, TypeError) as error:
            raise _no_loss(output, f"the output has no {path!r}") from error
    if not isinstance(value, Tensor):
        raise _no_loss(output, f"{path} is {type_with_article(value)}, not a tensor")
    if value.dim() != 0:
        raise _no_loss(output, f"{path} has shape {tuple(value.shape)}, but a loss is a scalar")
    return value


def _no_loss(output: object, message: str) -> TargetError:
    paths = [path for path, _ in scalars_in(output)]
    hint = f"use --loss {shlex.quote(paths[0])}" if paths else "use --loss sum, or define loss_fn(output, *inputs)"
    return TargetError(message, hint=hint)


def _item(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return value[key] if key in value else value[int(key)] if key.isdigit() else value[key]
    if isinstance(value, (tuple, list)) and re.fullmatch(r"-?\d+", key):
        return value[int(key)]
    return getattr(value, key)


def scalars_in(output: object) -> list[tuple[str, Tensor]]:
    """(path, value) of the floating-point scalars in `output`: in tuples, lists, mappings, dataclasses and plain objects."""
    return list(_scalars(output, "output", 0))


def _scalars(value: object, path: str, depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        if value.dim() == 0 and value.is_floating_point():
            yield path, value
    elif depth < MAX_DEPTH:
        for step, item in _items(value):
            yield from _scalars(item, path + step, depth + 1)


def _items(value: object) -> Iterator[tuple[str, object]]:
    """(path step, value) of the items of a container; nothing for other values."""
    if isinstance(value, Mapping):
        yield from ((f".{key}" if str(key).isidentifier() else f"[{key}]", item) for key, item in value.items())
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from ((f".{name}", getattr(value, name)) for name in value._fields)
    elif isinstance(value, (tuple, list)):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value))
    elif hasattr(value, "__dict__") and not isinstance(value, (type, nn.Module)):
        yield from ((f".{name}", item) for name, item in vars(value).items() if not name.startswith("_"))


def loss_in_output(output: object) -> OutputLoss | None:
    """The loss in `output`; None without one.

    It is the scalar named ``loss``, else the scalar named ``total_loss``, else the scalars with ``loss`` in their name, else
    the first scalar of a tuple that requires a gradient. Several scalars with names are separate losses: their sum is used,
    as for detection models. Scalars without a gradient, such as a temperature, are ignored.
    """
    scalars = scalars_in(output)
    for name in ("loss", *_TOTALS):
        exact = [(path, value) for path, value in scalars if path.endswith(f".{name}")]
        if exact:
            path, value = min(exact, key=lambda item: len(item[0]))
            return OutputLoss(name=path, value=value, reason="(the model returns its loss)")
    trainable = [(path, value) for path, value in scalars if value.requires_grad]
    named = [(path, value) for path, value in trainable if "loss" in path.rpartition(".")[2].lower()] or trainable
    if not named:
        return None
    if len(named) > 1 and all(re.search(r"\.\w+\Z", path) for path, _ in named):
        name = PLUS.join(path for path, _ in named)
        return OutputLoss(name=name, value=select_loss(output, name), reason=f"(the model returns {len(named)} losses)")
    path, value = named[0]
    others = ", ".join(f"--loss {shlex.quote(other)}" for other, _ in named[1:])
    reason = "(the model returns its loss)" if path == "output" else "(the output contains its loss)"
    return OutputLoss(name=path, value=value, reason=f"{reason[:-1]}; other scalars: {others})" if others else reason)
