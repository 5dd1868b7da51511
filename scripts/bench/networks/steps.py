"""The step that a network of the memory validation is measured and simulated with, and how one is described."""

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
    """How to build a model, make a batch of a given size on a device, and take its loss."""

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
    """One step, with a mark behind each phase; output and loss live until it returns, gradients until its end."""
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
    """One forward pass under no_grad; the output lives until the last mark."""
    mark("start")
    with torch.no_grad(), autocast():
        out = model(*inputs)
    mark("forward")
    del out
