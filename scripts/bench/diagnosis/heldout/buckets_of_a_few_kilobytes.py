"""DistributedDataParallel has buckets of ten kilobytes, so that a network of 300 layers sends hundreds of tiny messages."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CAUSE = "communication"
DEVICE = "cuda"
RANKS = 2
ALSO = ("launch", "python")


def train(device: str) -> Iterator[None]:
    """Train a deep, narrow network."""
    layers = [layer for _ in range(300) for layer in (nn.Linear(96, 96), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(96, 1)).to(device)
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    x = torch.randn(512, 96, device=device)
    while True:
        optimizer.zero_grad()
        ddp(x).square().mean().backward()
        optimizer.step()
        yield
