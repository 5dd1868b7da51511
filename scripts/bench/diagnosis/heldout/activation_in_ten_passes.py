"""An approximation of GELU is written in ten passes over large activations, and costs more than the layers between."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "pointwise"
DEVICE = "cpu"


def gelu(x: Tensor) -> Tensor:
    """The tanh approximation, one operator at a time."""
    cube = x * x * x
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * cube)
    return 0.5 * x * (1.0 + torch.tanh(inner))


def train(device: str) -> Iterator[None]:
    """Train a network of three layers on many rows."""
    first, second, third = nn.Linear(16, 64).to(device), nn.Linear(64, 64).to(device), nn.Linear(64, 1).to(device)
    parameters = [*first.parameters(), *second.parameters(), *third.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
    x, y = torch.randn(4_096, 16, device=device), torch.randn(4_096, 1, device=device)
    while True:
        h = gelu(second(gelu(first(x))))
        optimizer.zero_grad()
        (third(h) - y).abs().mean().backward()
        optimizer.step()
        yield
