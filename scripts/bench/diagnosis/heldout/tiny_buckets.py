"""DDP with `bucket_cap_mb=0.05`: dozens of small all-reduces replace a few large ones."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CAUSE = "communication"
DEVICE = "cuda"
STEPS = 2
RANKS = 2
ALSO = ("launch",)


def train(device: str) -> Iterator[None]:
    layers = [layer for _ in range(40) for layer in (nn.Linear(160, 160), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers).to(device), bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    signals = torch.randn(256, 160, device=device)
    while True:
        loss = model(signals).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
