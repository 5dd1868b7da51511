"""Inputs from NumPy make the whole model compute in float64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

CAUSE = "float64"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("build", "-i", "4096,2048:float64")
DEVICE = "cuda"
ALSO = ("precision", "layer")


def build(size: int = 2048) -> nn.Module:
    """Return a perceptron in double precision."""
    return nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size)).double()


def train(device: str) -> Iterator[None]:
    """Train a perceptron in double precision."""
    size = 2048 if device == "cuda" else 512
    model = build(size).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(4096 if device == "cuda" else 256, size))).to(device)
    while True:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
