"""A sound classifier accumulates the gradients of eight batches of one sample before it updates."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "launch"
DEVICE = "cpu"


def train(device: torch.device) -> Iterator[None]:
    model = nn.Sequential(
        nn.Conv1d(1, 8, 9, stride=4),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Conv1d(8, 16, 9, stride=4),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 5),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    sounds, strings = torch.randn(8, 1, 1, 512, device=device), torch.randint(5, (8, 1), device=device)
    while True:
        optimizer.zero_grad()
        for sound, string in zip(sounds, strings, strict=True):
            loss = nn.functional.cross_entropy(model(sound), string) / 8
            loss.backward()
        optimizer.step()
        yield
