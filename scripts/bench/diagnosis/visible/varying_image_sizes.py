"""cudnn.benchmark searches for an algorithm in each step, because every batch has another size."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "changing_shapes"
DEVICE = "cuda"
ALSO = ("cold_start", "memory", "sync", "launch")
STEPS = 4


def train(device: str) -> Iterator[None]:
    """Train on images whose size grows."""
    torch.backends.cudnn.benchmark = True
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(),
        nn.Conv2d(128, 128, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    y = torch.randint(10, (16,), device=device)
    size = 96
    while True:
        size += 4
        x = torch.randn(16, 3, size, size, device=device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
