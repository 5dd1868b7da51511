"""An evaluation loop reads one prediction after another."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "sync"
DEVICE = "cuda"
ALSO = ("launch", "python")


def train(device: str) -> Iterator[None]:
    """Count correct predictions, one by one."""
    model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 10)).to(device)
    x, y = torch.randn(64, 256, device=device), torch.randint(10, (64,), device=device)
    with torch.no_grad():
        while True:
            predicted = model(x).argmax(1)
            sum(int(predicted[index].item() == y[index].item()) for index in range(64))
            yield
