"""A ship classifier spends its time in convolutions of fair size: there is nothing to repair."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import nn

CAUSE = "nothing"
DEVICE = "cpu"


def train(device: torch.device) -> Iterator[None]:
    widths = (3, 64, 128, 128)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [
            nn.Conv2d(before, after, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1),
            nn.ReLU(),
        ]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    ships, kinds = torch.randn(8, 3, 96, 96, device=device), torch.randint(10, (8,), device=device)
    while True:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ships), kinds)
        loss.backward()
        optimizer.step()
        yield
