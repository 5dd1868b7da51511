"""One convolution with a 17x17 kernel takes nearly all of the work."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "layer"
FORMS = ("stacks", "analyze")
ANALYZE = ("build", "-i", "8,3,48,48", "--loss", "cross_entropy", "--optimizer", "sgd")
ALSO = ("precision", "channels", "depthwise")


def build() -> nn.Module:
    """Return a classifier with one expensive layer."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 17, padding=8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def train(device: str) -> Iterator[None]:
    """Train a network with one expensive layer."""
    size = 160 if device == "cuda" else 48
    model = build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 3, size, size, device=device), torch.randint(10, (8,), device=device)
    while True:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
