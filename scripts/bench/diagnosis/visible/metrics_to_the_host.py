"""Every step copies all logits to the host and computes metrics there."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "host_copies"
DEVICE = "cuda"
ALSO = ("sync", "precision", "python", "cpu_fallback", "data")


def train(device: str) -> Iterator[None]:
    """Train a classifier and compute its accuracy per class with NumPy."""
    model = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 4096)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8192, 512, device=device), torch.randint(4096, (8192,), device=device)
    while True:
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scores = logits.detach().cpu().numpy()
        (scores.argmax(1) == y.cpu().numpy()).mean()
        yield
