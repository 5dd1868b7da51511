"""A wide convolutional network trains in bfloat16 and channels_last with a large batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "nothing"
DEVICE = "cuda"


def train(device: str) -> Iterator[None]:
    """Train 3x3 convolutions of 512 channels."""
    torch.backends.cudnn.benchmark = True
    model = nn.Sequential(*(nn.Sequential(nn.Conv2d(512, 512, 3, padding=1), nn.ReLU()) for _ in range(6)))
    model = model.to(device, torch.bfloat16).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, 512, 32, 32, device=device, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    while True:
        loss = model(x).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
