"""A network in channels_last has a custom gate that makes its input contiguous, so that every block converts twice."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "layout"
DEVICE = "cuda"
ALSO = ("copies", "pointwise")


class Gate(nn.Module):
    """A gate per channel, written for contiguous maps."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output for one batch."""
        flat = x.contiguous().flatten(2)
        return (flat * self.gain).view(x.shape)


class Block(nn.Module):
    """A pointwise convolution and its gate."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1)
        self.gate = Gate(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output for one batch."""
        x = x.contiguous(memory_format=torch.channels_last)
        return self.gate(self.conv(x))


def train(device: str) -> Iterator[None]:
    """Train eight blocks in bfloat16."""
    model = (
        nn.Sequential(*(Block(64) for _ in range(8))).to(device, torch.bfloat16).to(memory_format=torch.channels_last)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(32, 64, 128, 128, device=device, dtype=torch.bfloat16)
    while True:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        yield
