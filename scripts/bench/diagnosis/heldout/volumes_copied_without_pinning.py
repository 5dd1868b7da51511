"""Every step copies a large batch of scans from ordinary memory to the device and waits for it before a small network runs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "host_copies"
DEVICE = "cuda"
ALSO = ("sync",)


def train(device: str) -> Iterator[None]:
    """Train a small network on scans that are kept in host memory."""
    scans = torch.zeros(48, 1, 128, 128, 128)
    labels = torch.arange(48) % 2
    model = nn.Sequential(
        nn.AvgPool3d(4),
        nn.Conv3d(1, 16, 3),
        nn.ReLU(),
        nn.Conv3d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(32, 2),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    step = 0
    while True:
        chosen = slice(16 * (step % 3), 16 * (step % 3) + 16)
        x, y = scans[chosen].to(device), labels[chosen].to(device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step += 1
        yield
