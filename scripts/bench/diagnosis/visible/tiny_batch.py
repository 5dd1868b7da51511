"""A convolutional network is trained on batches of one small image."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "launch"
ALSO = ("python", "optimizer")


def convnet(width: int) -> nn.Module:
    """Return a small convolutional classifier of 32x32 images."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(2 * width, 10),
    )  # fmt: skip


def train(device: str) -> Iterator[None]:
    """Train on single images."""
    model = nn.Sequential(
        *(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(16))
    )
    model = nn.Sequential(nn.Conv2d(3, 8, 1), model, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(1, 3, 16, 16, device=device), torch.tensor([3], device=device)
    while True:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
