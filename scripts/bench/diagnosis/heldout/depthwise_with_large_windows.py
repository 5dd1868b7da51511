"""The depthwise convolutions of 27 by 27 take far longer than the pointwise layers that do most of the arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "depthwise"
DEVICE = "cuda"
ALSO = ("layer",)


class Block(nn.Module):
    """A depthwise convolution with a large window, then a pointwise perceptron."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.space = nn.Conv2d(channels, channels, 27, padding=13, groups=channels)
        self.up = nn.Conv2d(channels, 2 * channels, 1)
        self.down = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output for one batch."""
        return x + self.down(nn.functional.gelu(self.up(self.space(x))))


def train(device: str) -> Iterator[None]:
    """Train three blocks in bfloat16."""
    model = nn.Sequential(*(Block(128) for _ in range(3))).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(8, 128, 56, 56, device=device, dtype=torch.bfloat16)
    while True:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        yield
