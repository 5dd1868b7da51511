"""Large matrix products run in float32 without tensor cores."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "precision"
DEVICE = "cuda"
ALSO = ("layer",)


def train(device: str) -> Iterator[None]:
    """Train a wide perceptron."""
    torch.backends.cuda.matmul.allow_tf32 = False
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(6))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(8192, 4096, device=device)
    while True:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
