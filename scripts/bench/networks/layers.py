"""Modules from rows of text, and modules of one function: what the networks of the memory benchmark consist of."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


def stack(rows: str, **builders: Callable[..., nn.Module]) -> nn.Sequential:
    """The modules of `rows` in sequence, as ``Conv2d 3 64 11 stride=4; ReLU True``.

    A row has the name of a class of torch.nn or of a function of `builders`, and its arguments. A row ``3 * NAME`` is repeated.
    """
    modules: list[nn.Module] = []
    for row in filter(str.strip, rows.split(";")):
        count, star, rest = row.strip().partition(" * ")
        name, *words = (rest if star else row).split()
        build = builders.get(name) or getattr(nn, name)
        positional = [ast.literal_eval(word) for word in words if "=" not in word]
        named = {key: ast.literal_eval(value) for key, _, value in (word.partition("=") for word in words) if value}
        modules += [build(*positional, **named) for _ in range(int(count) if star else 1)]
    return nn.Sequential(*modules)


class Plan(nn.Module):
    """A module with a custom forward: it calls `run` with itself and the inputs."""

    def __init__(self, run: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *inputs: Any) -> Any:
        """Call the function."""
        return self.run(self, *inputs)


class Residual(nn.Module):
    """x + inner(x), with a projection of x if its shape changes, and an activation after the sum."""

    def __init__(self, inner: nn.Module, shortcut: nn.Module | None = None, after: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.shortcut = shortcut or nn.Identity()
        self.after = after or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Add both branches and apply the activation."""
        out: Tensor = self.after(self.inner(x) + self.shortcut(x))
        return out


def head(width: int, classes: int, dims: int = 2) -> str:
    """The rows of an average over space and one linear layer."""
    return f"AdaptiveAvgPool{dims}d 1; Flatten; Linear {width} {classes}"
