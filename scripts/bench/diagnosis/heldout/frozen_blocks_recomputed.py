"""Every block of a frozen network is checkpointed although only a prompt at its input is trained, so a third is recomputed."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CAUSE = "recompute"
DEVICE = "any"


class Block(nn.Module):
    """A residual perceptron."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output for one batch."""
        return x + self.down(nn.functional.relu(self.up(self.norm(x))))


def train(device: str) -> Iterator[None]:
    """Tune a prompt in front of a frozen network."""
    cuda = device.startswith("cuda")
    width, rows, dtype = (2048, 8192, torch.bfloat16) if cuda else (256, 256, torch.float32)
    blocks = nn.ModuleList(Block(width) for _ in range(6)).requires_grad_(False).to(device, dtype)
    prompt = nn.Parameter(torch.zeros(1, width, device=device, dtype=dtype))
    optimizer = torch.optim.Adam([prompt], lr=1e-2)
    x = torch.randn(rows, width, device=device, dtype=dtype)
    while True:
        h = x + prompt
        for block in blocks:
            h = checkpoint(block, h, use_reentrant=False)
        optimizer.zero_grad()
        h.square().mean().backward()
        optimizer.step()
        yield
