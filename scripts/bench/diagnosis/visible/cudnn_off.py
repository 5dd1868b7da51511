"""cuDNN is off, as a snippet for another problem advised."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "cudnn"
DEVICE = "cuda"
ALSO = ("layer", "precision")


def convnet(width: int) -> nn.Module:
    """Return a small convolutional classifier of 32x32 images."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(2 * width, 10),
    )  # fmt: skip


def train(device: str) -> Iterator[None]:
    """Train without cuDNN."""
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1)
    )
    model = nn.Sequential(model, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(32, 3, 128, 128, device=device), torch.randint(10, (32,), device=device)
    while True:
        with torch.backends.cudnn.flags(enabled=False):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        yield
