"""A setting for a large server makes torch use many more threads than this machine has cores."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "threads"
DEVICE = "cpu"
FORMS = ("analyze",)
ANALYZE = ("build", "-i", "64,256")
ALSO = ("launch", "pointwise")


def build() -> nn.Module:
    """Return a perceptron, with eight threads for each core."""
    torch.set_num_threads(8 * (os.cpu_count() or 1))
    return nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(16)))


def train(device: str) -> Iterator[None]:
    """Train the perceptron."""
    model = build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, 256, device=device)
    while True:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
