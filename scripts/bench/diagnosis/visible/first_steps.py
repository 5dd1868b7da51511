"""The recorded steps are the first of the process: the device is initialized in them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "cold_start"
DEVICE = "cuda"
WARMUP = 0
ALSO = ("compile", "launch")


def convnet(width: int) -> nn.Module:
    """Return a small convolutional classifier of 32x32 images."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(2 * width, 10),
    )  # fmt: skip


def train(device: str) -> Iterator[None]:
    """Train from the very first step."""
    model = convnet(32).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 3, 32, 32, device=device), torch.randint(10, (64,), device=device)
    while True:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
