"""Autocast casts small tensors back and forth and saves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "autocast"
DEVICE = "cuda"
ALSO = ("copies", "pointwise")


def train(device: str) -> Iterator[None]:
    """Train layers that are too small to gain from half precision."""
    layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6)).to(device)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)
    x = torch.randn(2_000_000, 16, device=device)
    while True:
        with torch.autocast("cuda", torch.bfloat16):
            h = x
            for layer in layers:
                h = layer(h).float().relu()
            loss = h.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
