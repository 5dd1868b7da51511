"""Adam updates a large table of which a batch uses few rows."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "optimizer"
ALSO = ("embedding", "pointwise", "copies")


def train(device: str) -> Iterator[None]:
    """Train a model whose parameters are many and whose work is small."""
    rows = 4_000_000 if device == "cuda" else 200_000
    table = nn.Parameter(torch.randn(rows, 64, device=device))
    optimizer = torch.optim.Adam([table], lr=1e-3, foreach=False)
    chosen = torch.arange(256, device=device)
    while True:
        loss = table[chosen].square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield
