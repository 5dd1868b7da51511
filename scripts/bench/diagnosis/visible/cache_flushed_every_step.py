"""torch.cuda.empty_cache() in the loop returns all memory, and the next step allocates it again."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "memory"
DEVICE = "cuda"
ALSO = ("sync",)


def train(device: str) -> Iterator[None]:
    """Train a perceptron with large activations."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(8))).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(1 << 18, 256, device=device, dtype=torch.bfloat16)
    while True:
        loss = model(x).float().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del loss
        torch.cuda.empty_cache()
        yield
