"""The table of eight million products has dense gradients, which are zeroed and applied in full for 4096 rows per step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "embedding"
DEVICE = "cuda"
ALSO = ("optimizer",)

PRODUCTS = 8_000_000


def train(device: str) -> Iterator[None]:
    """Learn which of two products a customer prefers."""
    table = nn.Embedding(PRODUCTS, 64, device=device)
    tower = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.SGD([*table.parameters(), *tower.parameters()], lr=0.01)
    while True:
        pairs = torch.randint(0, PRODUCTS, (2048, 2), device=device)
        margin = tower(table(pairs).flatten(1))
        optimizer.zero_grad()
        nn.functional.softplus(-margin).mean().backward()
        optimizer.step()
        yield
