"""Models and optimizers that a program makes while its loop runs: each stands for the first one of its kind.

Meta learning copies the model for each task, and cross-validation builds one for each fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from profiler_kit.recording.modules import live, named_parts

_Shape = tuple[int, ...] | None  # None: of a functional copy, whose parameters are set while it is called
_Structure = tuple[tuple[str, tuple[tuple[str, _Shape], ...]], ...]


def model_of_copy(module: nn.Module, models: Iterable[nn.Module]) -> nn.Module | None:
    """The first of `models` with parts and parameters of the same names and shapes as `module`; None without one."""
    candidates = [model for model in models if _names(model) == _names(module)]
    structure = _structure(module) if candidates else ()
    return next((model for model in candidates if _are_equal(structure, _structure(model))), None)


def _names(module: nn.Module) -> tuple[list[str], list[str]]:
    """The names of the parts and the parameters of `module` itself."""
    variables = vars(module)
    parameters = variables.get("_parameters") or {}
    parts = [*variables.get("_modules", {}).keys()]  # a scripted module has no plain dictionary
    return parts, [name for name, value in parameters.items() if value is not None]


def _structure(module: nn.Module) -> _Structure:
    return tuple(
        (path, tuple((name, _shape(p)) for name, p in part._parameters.items() if p is not None))
        for path, part in named_parts(module)
    )


def _shape(parameter: Any) -> _Shape:
    return tuple(parameter.shape) if isinstance(parameter, torch.Tensor) else None


def _are_equal(first: _Structure, second: _Structure) -> bool:
    """Whether two structures have the same parts and parameters; an unknown shape is any."""
    pairs = zip(first, second, strict=True) if len(first) == len(second) else ()
    return (
        bool(first)
        and len(first) == len(second)
        and all(
            path == other_path
            and [name for name, _ in own] == [name for name, _ in others]
            and all(a == b or a is None or b is None for (_, a), (_, b) in zip(own, others, strict=True))
            for (path, own), (other_path, others) in pairs
        )
    )


class OptimizerKeys:
    """A key for each optimizer: its id; of one that is made later, that of the first one for parameters of the same shapes.

    `has_copies`: whether there was such a later one.
    """

    def __init__(self) -> None:
        self.has_copies = False
        self._keys: dict[int, int] = {}
        self._kinds: dict[Any, int] = {}

    def of(self, optimizer: torch.optim.Optimizer) -> int:
        """The key of `optimizer`. All that exist at the first call have different ones."""
        if not self._keys:
            for other in live(torch.optim.Optimizer):
                self._keys[id(other)] = id(other)
                self._kinds.setdefault(_kind(other), id(other))
        key = self._keys.get(id(optimizer))
        if key is None:
            key = self._keys[id(optimizer)] = self._kinds.setdefault(_kind(optimizer), id(optimizer))
            self.has_copies |= key != id(optimizer)
        return key


def _kind(optimizer: torch.optim.Optimizer) -> tuple[type, Sequence[torch.Size]]:
    groups = getattr(optimizer, "param_groups", None) or ()
    return type(optimizer), tuple(parameter.shape for group in groups for parameter in group["params"])
