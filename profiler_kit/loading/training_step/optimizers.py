"""Optimizers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import torch
from torch import Tensor
from torch.optim import Optimizer

DEFAULT: Final = "adamw"

# Default learning rates of torch, except where torch has none or where its default makes the values overflow.
OPTIMIZERS: Final[dict[str, Callable[[Iterable[Tensor]], Optimizer]]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.001),
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
}


def name_of(optimizer: Optimizer) -> str | None:
    """The name of an optimizer of the class of `optimizer`; None without one."""
    name = type(optimizer).__name__.lower()
    if name == "sgd" and optimizer.defaults.get("momentum"):
        name = "sgd_momentum"
    return name if name in OPTIMIZERS else None
