"""The recipe of a network for the memory validation, and the steps that measurement and simulation run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Inputs = tuple[Any, ...]
Autocast = Callable[[], contextlib.AbstractContextManager[Any]]
Mark = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Functions that build a model, make a batch (for a size and a device) and compute the loss."""

    build: Callable[[], nn.Module]
    batch: Callable[[int, str], tuple[Inputs, Any]]
    loss: Callable[[Any, Any], Tensor]


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Inputs,
    target: Any,
    loss: Callable[[Any, Any], Tensor],
    autocast: Autocast,
    mark: Mark,
) -> None:
    """Run one step with a mark after each phase. Output and loss live until it returns, gradients until `zero_grad`."""
    mark("start")
    with autocast():
        out = model(*inputs)
        value = loss(out, target)
    mark("forward")
    value.backward()
    mark("backward")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    mark("optimizer")


def infer_step(model: nn.Module, inputs: Inputs, autocast: Autocast, mark: Mark) -> None:
    """Run one forward pass under no_grad. The output lives until the last mark."""
    mark("start")
    with torch.no_grad(), autocast():
        out = model(*inputs)
    mark("forward")
    del out
