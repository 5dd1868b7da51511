"""The gradient of a large embedding is dense, though a batch uses few rows."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "embedding"
ALSO = ("optimizer", "pointwise", "copies", "layer")


def train(device: str) -> Iterator[None]:
    """Train a recommender with plain SGD."""
    rows = 6_000_000 if device == "cuda" else 300_000
    table, head = nn.Embedding(rows, 64).to(device), nn.Linear(64, 1).to(device)
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
    ids = torch.randint(rows, (1024,), device=device)
    while True:
        loss = head(table(ids)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
