"""Large images are copied from pageable memory in every step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "host_copies"
DEVICE = "cuda"
ALSO = ("sync", "data")


def convnet(width: int) -> nn.Module:
    """Return a small convolutional classifier of 32x32 images."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(2 * width, 10),
    )  # fmt: skip


def train(device: str) -> Iterator[None]:
    """Train a cheap model on large inputs."""
    model = nn.Sequential(nn.AvgPool2d(8), convnet(16)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, y = torch.rand(128, 3, 512, 512), torch.randint(10, (128,), device=device)
    while True:
        loss = nn.functional.cross_entropy(model(images.to(device)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
