"""Every activation is read with .item(), yet products in float32 take nine tenths of the step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "precision"
DEVICE = "cuda"
ALSO = ("sync", "launch", "layer")


def train(device: str) -> Iterator[None]:
    """Train a perceptron that measures the norm of every activation."""
    layers = nn.ModuleList(nn.Linear(2048, 2048) for _ in range(8)).to(device)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)
    x = torch.randn(4096, 2048, device=device)
    norms = []
    while True:
        h = x
        for layer in layers:
            h = layer(h).relu()
            norms.append(h.norm().item())
        loss = h.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        norms.append(loss.item())
        yield
