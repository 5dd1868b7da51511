"""Nothing is wrong: four large micro-batches in bfloat16 are accumulated before each step of a fused optimizer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "nothing"
DEVICE = "cuda"


def train(device: str) -> Iterator[None]:
    """Train a wide perceptron, one optimizer step in four micro-batches."""
    layers = [layer for _ in range(4) for layer in (nn.Linear(4096, 4096), nn.ReLU())]
    model = nn.Sequential(*layers).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    batches = torch.randn(4, 16_384, 4096, device=device, dtype=torch.bfloat16)
    while True:
        for x in batches:
            (model(x).mean() / len(batches)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield
