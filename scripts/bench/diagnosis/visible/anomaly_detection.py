"""Anomaly detection was left on after debugging."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "anomaly"
DEVICE = "cuda"
ALSO = ("launch", "python", "sync")


def train(device: str) -> Iterator[None]:
    """Train with the checks of autograd."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(40))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, 64, device=device)
    while True:
        with torch.autograd.set_detect_anomaly(True):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        yield
