"""Parts of random networks: random choices, layers that combine other layers, and losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Inputs = Callable[[str], tuple[Tensor, ...]]  # a device -> the inputs of a step
Loss = Callable[[Tensor], Tensor]  # an output -> a scalar; labels are random
Network = tuple[nn.Module, Inputs, Loss]
Layer = Callable[..., nn.Module]
T = TypeVar("T")


class Draw(Random):
    """Random choices of a network."""

    def pick(self, *values: T) -> T:
        """One of `values`."""
        return self.choice(values)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random() < probability

    def layer(self, *layers: Layer) -> Layer:
        """One of `layers`, functions that return a module."""
        return self.choice(layers)

    def width(self, *values: int) -> int:
        """One of `values`, or a number near it; a multiple of 8."""
        return max(8, int(self.choice(values) * self.pick(1, 1, 1, 0.75, 1.25, 1.5)) // 8 * 8)

    def batch(self, example: float, limit: float) -> int:
        """A batch size of at most 256. `example`: the size of one example; the batch's is at most `limit` if possible."""
        return max(1, min(self.pick(8, 16, 32, 64, 128, 256), int(limit / example)))

    def activation(self) -> Layer:
        """A class of activations."""
        return self.layer(nn.ReLU, nn.SiLU, nn.GELU, nn.LeakyReLU, nn.Hardswish, nn.ELU, nn.ReLU6)


class Combine(nn.ModuleList):
    """Applies each of `branches` to the input and combines their outputs."""

    def __init__(self, combine: Callable[[list[Tensor]], Tensor], *branches: nn.Module) -> None:
        super().__init__(branches)
        self.combine = combine

    def forward(self, x: Tensor) -> Tensor:
        """The combined outputs."""
        return self.combine([branch(x) for branch in self])


def concatenated(*branches: nn.Module) -> Combine:
    """The outputs of `branches`, concatenated."""
    return Combine(lambda outputs: torch.cat(outputs, 1), *branches)


def residual(*layers: nn.Module, skip: nn.Module | None = None) -> Combine:
    """The output of `layers` plus that of `skip`, by default the input."""
    return Combine(lambda outputs: outputs[0] + outputs[1], skip or nn.Identity(), nn.Sequential(*layers))


def product(left: nn.Module, right: nn.Module) -> Combine:
    """The product of both outputs."""
    return Combine(lambda outputs: outputs[0] * outputs[1], left, right)


class Call(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        """The function's result."""
        return self.function(x)


def group_norm(channels: int) -> nn.Module:
    """Group normalization of up to 32 groups."""
    return nn.GroupNorm(math.gcd(channels, 32), channels)


def squeeze_excite(channels: int, inner: int) -> nn.Module:
    """Images whose channels are scaled by a factor that depends on their means."""
    squeeze = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), nn.SiLU()]
    return product(nn.Identity(), nn.Sequential(*squeeze, nn.Conv2d(inner, channels, 1), nn.Sigmoid()))


def normal(*shape: int) -> Inputs:
    """One normally distributed input."""
    return lambda device: (torch.randn(shape, device=device),)


def indices(limit: int, *shape: int) -> Inputs:
    """One input of integers below `limit`."""
    return lambda device: (torch.randint(0, limit, shape, device=device),)


def cross_entropy(output: Tensor) -> Tensor:
    """The cross entropy of random classes, which are the output's dimension 1."""
    classes = torch.randint(0, output.shape[1], (output.shape[0], *output.shape[2:]), device=output.device)
    return F.cross_entropy(output, classes)


def binary(output: Tensor) -> Tensor:
    """The binary cross entropy of random probabilities."""
    return F.binary_cross_entropy_with_logits(output, torch.rand_like(output))


def regression(function: Callable[[Tensor, Tensor], Tensor]) -> Loss:
    """A loss `function` of random targets."""
    return lambda output: function(output, torch.randn_like(output))
