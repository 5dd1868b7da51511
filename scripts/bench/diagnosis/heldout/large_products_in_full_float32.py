"""Large matrix products run in float32 with TF32 off, as is the default, and leave the tensor cores idle."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "precision"
DEVICE = "cuda"


def train(device: str) -> Iterator[None]:
    """Train a wide perceptron on wide rows."""
    model = nn.Sequential(nn.Linear(4096, 8192), nn.ReLU(), nn.Linear(8192, 4096), nn.ReLU(), nn.Linear(4096, 256)).to(
        device
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(4096, 4096, device=device), torch.randint(0, 256, (4096,), device=device)
    while True:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield
