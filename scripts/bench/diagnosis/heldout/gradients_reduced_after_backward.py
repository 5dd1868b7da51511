"""All gradients of a large model are averaged after the backward pass of a small batch, one synchronous call per tensor."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

CAUSE = "communication"
DEVICE = "cuda"
RANKS = 2


def train(device: str) -> Iterator[None]:
    """Train eight wide layers with 32 rows per rank."""
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(6144, 6144), nn.ReLU())]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(32, 6144, device=device)
    while True:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        yield
