"""A perceptron with many small layers still runs under detect_anomaly, left over from a hunt for NaNs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "anomaly"
DEVICE = "any"
ALSO = ("launch", "sync")


def train(device: str) -> Iterator[None]:
    """Train a narrow, deep network on a toy problem."""
    layers: list[nn.Module] = []
    for _ in range(40):
        layers += [nn.Linear(64, 64), nn.LayerNorm(64), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.randn(128, 64, device=device)
    y = x.square().sum(dim=1, keepdim=True)
    while True:
        with torch.autograd.detect_anomaly(check_nan=True):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        yield
