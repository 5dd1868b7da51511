"""DDP with gradient accumulation but without `no_sync()`: each micro-batch all-reduces 1.3 GB of gradients, exposed."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CAUSE = "communication"
DEVICE = "cuda"
RANKS = 2


def train(device: str) -> Iterator[None]:
    with torch.device(device):
        model = nn.Sequential(*(layer for _ in range(5) for layer in (nn.Linear(8192, 8192), nn.ReLU())))
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        optimizer.zero_grad()
        for _ in range(4):
            frames = torch.randn(64, 8192, device=device)
            (parallel(frames).square().mean() / 4).backward()
        optimizer.step()
        yield
