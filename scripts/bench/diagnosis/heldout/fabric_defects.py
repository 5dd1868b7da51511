"""Defects in fabric: a plain convolutional network with layers of similar cost; nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "nothing"
STEPS = 2
DEVICE = "cpu"


def train(device: str) -> Iterator[None]:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(128, 256, 3, stride=2, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 6),
    ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images = torch.rand(24, 3, 128, 128).to(memory_format=torch.channels_last)
    defects = torch.randint(0, 6, (24,))
    while True:
        loss = nn.functional.cross_entropy(model(images), defects)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
