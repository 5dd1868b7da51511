"""A wide perceptron is trained with four rows per step, so that Adam's pass over the parameters outlasts the computation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "optimizer"
DEVICE = "cpu"


def train(device: str) -> Iterator[None]:
    """Fit a table of 1024 columns."""
    model = nn.Sequential(nn.Linear(1024, 1536), nn.SiLU(), nn.Linear(1536, 1536), nn.SiLU(), nn.Linear(1536, 8)).to(
        device
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-5, amsgrad=True, foreach=False)
    x, y = torch.randn(4, 1024, device=device), torch.randn(4, 8, device=device)
    while True:
        loss = nn.functional.huber_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield
