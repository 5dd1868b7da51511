"""The recipe of a network for the memory validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

Inputs = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Functions that build a model, make a batch (for a size and a device) and compute the loss."""

    build: Callable[[], nn.Module]
    batch: Callable[[int, str], tuple[Inputs, Any]]
    loss: Callable[[Any, Any], Tensor]
