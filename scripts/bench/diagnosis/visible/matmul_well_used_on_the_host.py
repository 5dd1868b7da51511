"""Wide layers keep the cores of the host busy with matrix products."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "nothing"
DEVICE = "cpu"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("build", "-i", "512,1024")


def build() -> nn.Module:
    """Return four wide layers."""
    return nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(4)))


def train(device: str) -> Iterator[None]:
    """Train the layers on a large batch."""
    model = build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(512, 1024, device=device)
    while True:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
