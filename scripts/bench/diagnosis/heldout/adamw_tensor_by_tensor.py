"""AdamW with foreach=False updates 1200 small tensors one at a time, after a step of very little computation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "optimizer"
DEVICE = "cuda"
ALSO = ("launch", "python")


def train(device: str) -> Iterator[None]:
    """Train adapters of low rank, all applied to the same features."""
    features, rank, adapters = 256, 4, 400
    downs = nn.ParameterList(nn.Parameter(torch.randn(features, rank, device=device) * 0.02) for _ in range(adapters))
    ups = nn.ParameterList(nn.Parameter(torch.zeros(rank, features, device=device)) for _ in range(adapters))
    gains = nn.ParameterList(nn.Parameter(torch.ones(features, device=device)) for _ in range(adapters))
    optimizer = torch.optim.AdamW([*downs, *ups, *gains], lr=1e-4, foreach=False)
    x, y = torch.randn(64, features, device=device), torch.randn(64, features, device=device)
    while True:
        delta = torch.stack(list(downs)) @ torch.stack(list(ups))
        out = (x @ delta) * torch.stack(list(gains)).unsqueeze(1)
        loss = nn.functional.mse_loss(x + out.mean(dim=0), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
