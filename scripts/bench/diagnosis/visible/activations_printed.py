"""Debugging output of every layer's activations was left in the forward pass."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "sync"
DEVICE = "cuda"
ALSO = ("python",)


class Verbose(nn.Module):
    """A perceptron that logs the range of its activations."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.log: list[str] = []

    def forward(self, x: Tensor) -> Tensor:
        """Apply all layers and note the range of each result."""
        for index, layer in enumerate(self.layers):
            x = layer(x).tanh()
            self.log.append(f"layer {index}: {x.min()} to {x.max()}, mean {x.mean()}")
        return x


def train(device: str) -> Iterator[None]:
    """Train the perceptron."""
    model = Verbose(512, 12).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(1024, 512, device=device)
    while True:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.log.clear()
        yield
