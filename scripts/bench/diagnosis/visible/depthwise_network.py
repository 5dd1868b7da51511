"""A mobile network spends its time in depthwise convolutions with large kernels."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "depthwise"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("build", "-i", "16,96,112,112")
DEVICE = "cuda"
ALSO = ("layer", "precision")


def block(width: int) -> nn.Module:
    """Return a depthwise convolution and a pointwise one."""
    return nn.Sequential(
        nn.Conv2d(width, width, 7, padding=3, groups=width), nn.ReLU(), nn.Conv2d(width, width, 1), nn.ReLU()
    )


def build() -> nn.Module:
    """Return six blocks."""
    return nn.Sequential(*(block(96) for _ in range(6)))


def train(device: str) -> Iterator[None]:
    """Train the blocks."""
    model = build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(16, 96, 112, 112, device=device)
    while True:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
