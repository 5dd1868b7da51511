"""FSDP gathers large layers for a few examples, and nothing hides the communication."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

CAUSE = "communication"
DEVICE = "cuda"
RANKS = 2
STEPS = 2
FORMS = ("plain",)
ALSO = ("optimizer", "launch", "copies", "straggler")


def train(device: str) -> Iterator[None]:
    """Train sharded wide layers."""
    model = nn.Sequential(*(nn.Linear(8192, 8192, device=device) for _ in range(6)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(16, 8192, device=device)
    while True:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
