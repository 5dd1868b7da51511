"""Modules from rows of text, and modules of one function: what the networks of the memory benchmark consist of."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def stack(rows: str, **builders: Callable[..., nn.Module]) -> nn.Sequential:
    """The modules of `rows` in sequence, as ``Conv2d 3 64 11 stride=4; ReLU True``.

    A row has the name of a class of torch.nn, of a function of this file or of `builders`, and its arguments. A row ``3 * NAME``
    is repeated.
    """
    modules: list[nn.Module] = []
    for row in filter(str.strip, rows.split(";")):
        count, star, rest = row.strip().partition(" * ")
        name, *words = (rest if star else row).split()
        build = builders.get(name) or BUILDERS.get(name) or getattr(nn, name)
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


def branches(*modules: nn.Module) -> Plan:
    """The outputs of several modules for the same input, concatenated along the channels."""
    return Plan(lambda m, x: torch.cat([b(x) for b in m.modules_], 1), modules_=nn.ModuleList(modules))


def first(inner: nn.Module) -> Plan:
    """The first output of a recurrent module."""
    return Plan(lambda m, x: m.inner(x)[0], inner=inner)


def unit(
    i: int, o: int, k: int | tuple[int, ...], s: int = 1, g: int = 1, d: int = 1, act: str = "ReLU True", dims: int = 2
) -> nn.Sequential:
    """Convolution, batch normalization, activation."""
    return stack(f"{convolution(i, o, k, s, g, d, dims)}; BatchNorm{dims}d {o}; {act}")


def convolution(i: int, o: int, k: int | tuple[int, ...], s: int = 1, g: int = 1, d: int = 1, dims: int = 2) -> str:
    """The row of a convolution without bias that keeps the size at stride 1."""
    kernel = (k,) * dims if isinstance(k, int) else k
    padding = [d * (side - 1) // 2 for side in kernel]
    return f"Conv{dims}d {i} {o} {str(kernel).replace(' ', '')} {s} {str(padding).replace(' ', '')} {d} {g} bias=False"


def bare(i: int, o: int, k: int, s: int = 1, g: int = 1, dims: int = 2) -> str:
    """The rows of a unit without its activation."""
    return f"{convolution(i, o, k, s, g, dims=dims)}; BatchNorm{dims}d {o}"


def head(width: int, classes: int, dims: int = 2) -> str:
    """The rows of an average over space and one linear layer."""
    return f"AdaptiveAvgPool{dims}d 1; Flatten; Linear {width} {classes}"


def basic(i: int, o: int, s: int = 1, dims: int = 2) -> Residual:
    """ResNet's basic block."""
    inner = stack(f"unit {i} {o} 3 {s} dims={dims}; {bare(o, o, 3, dims=dims)}")
    shortcut = stack(bare(i, o, 1, s, dims=dims)) if s > 1 or i != o else None
    return Residual(inner, shortcut, nn.ReLU(inplace=True))


def apply(function: Callable[[Tensor], Tensor]) -> Plan:
    """A function of one tensor as a module."""
    return Plan(lambda _, x: function(x))


def turned(*dims: int) -> Plan:
    """The input with dimensions in another order."""
    return apply(lambda x: x.permute(dims))


BUILDERS: dict[str, Callable[..., nn.Module]] = {"unit": unit, "basic": basic, "turned": turned}
