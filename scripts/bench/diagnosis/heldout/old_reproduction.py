"""A reproduction of an old paper: the script disables cuDNN, and nobody remembers why."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "cudnn"
DEVICE = "cuda"
ALSO = ("layout", "copies", "precision")


def stage(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True), nn.MaxPool2d(2)]


def train(device: str) -> Iterator[None]:
    torch.backends.cudnn.enabled = False
    model = nn.Sequential(
        *stage(3, 64),
        *stage(64, 128),
        *stage(128, 256),
        *stage(256, 256),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(256, 100),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    images, labels = torch.rand(32, 3, 128, 128, device=device), torch.randint(0, 100, (32,), device=device)
    while True:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
