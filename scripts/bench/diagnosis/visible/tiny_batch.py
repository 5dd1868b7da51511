"""A convolutional network is trained on batches of one small image."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "launch"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("build", "-i", "1,3,16,16", "--loss", "cross_entropy", "--optimizer", "sgd")
ALSO = ("python", "optimizer")


def build() -> nn.Module:
    """Return a deep and narrow classifier of small images."""
    blocks = (nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(16))
    return nn.Sequential(nn.Conv2d(3, 8, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


def train(device: str) -> Iterator[None]:
    """Train on single images."""
    model = build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(1, 3, 16, 16, device=device), torch.tensor([3], device=device)
    while True:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
