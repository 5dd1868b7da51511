"""FSDP with small batches: gathering the parameters of each layer takes longer than computing with them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

CAUSE = "communication"
DEVICE = "cuda"
RANKS = 2
ALSO = ("launch",)


def train(device: str) -> Iterator[None]:
    with torch.device(device):
        model = nn.Sequential(*(nn.Sequential(nn.Linear(6144, 6144), nn.GELU()) for _ in range(8)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while True:
        loss = model(torch.randn(32, 6144, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
