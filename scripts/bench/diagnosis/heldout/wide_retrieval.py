"""A retrieval model of 500 million parameters and 16 queries per step: AdamW takes longer than the gradients."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "optimizer"
DEVICE = "cuda"


def train(device: str) -> Iterator[None]:
    with torch.device(device):
        model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(8192, 8192, bias=False), nn.ReLU())))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    queries, documents = torch.randn(16, 8192, device=device), torch.randn(16, 8192, device=device)
    while True:
        loss = nn.functional.mse_loss(model(queries), documents)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
