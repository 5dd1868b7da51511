"""An optimizer without foreach starts a dozen kernels for each of many small parameters."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "optimizer"
ALSO = ("launch", "python")


def train(device: str) -> Iterator[None]:
    """Train a deep stack of small layers."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)) for _ in range(24))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    x = torch.randn(32, 64, device=device)
    while True:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
