"""Nothing is wrong: wide convolutions in bfloat16 and channels_last with a large batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "nothing"
DEVICE = "cuda"


def train(device: str) -> Iterator[None]:
    """Train five convolutions of 512 channels."""
    torch.backends.cudnn.benchmark = True
    layers = [
        layer for _ in range(5) for layer in (nn.Conv2d(512, 512, 3, padding=1, bias=False), nn.ReLU(inplace=True))
    ]
    model = nn.Sequential(*layers).to(device, torch.bfloat16).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    x = torch.randn(64, 512, 28, 28, device=device, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    while True:
        optimizer.zero_grad(set_to_none=True)
        model(x).mean().backward()
        optimizer.step()
        yield
