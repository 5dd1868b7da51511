"""A perceptron in bfloat16 keeps the tensor cores busy."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "nothing"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("build", "-i", "16384,8192", "--dtype", "bfloat16", "--optimizer", "sgd")
DEVICE = "cuda"


def build() -> nn.Module:
    """Return four wide layers."""
    return nn.Sequential(*(nn.Sequential(nn.Linear(8192, 8192), nn.ReLU()) for _ in range(4)))


def train(device: str) -> Iterator[None]:
    """Train wide layers."""
    model = build().to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(16384, 8192, device=device, dtype=torch.bfloat16)
    while True:
        loss = model(x).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
