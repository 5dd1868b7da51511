"""Every block is checkpointed, so the backward pass runs the forward pass again."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CAUSE = "recompute"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("Checkpointed", "-i", "8192,4096", "--amp", "bfloat16", "--optimizer", "sgd")
DEVICE = "cuda"
ALSO = ("autocast", "layer")


class Checkpointed(nn.Module):
    """Blocks of which all are recomputed."""

    def __init__(self, width: int = 4096) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the blocks and keep only their inputs."""
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def train(device: str) -> Iterator[None]:
    """Train blocks of which all are recomputed."""
    width, rows = (4096, 8192) if device == "cuda" else (256, 2048)
    model = Checkpointed(width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(rows, width, device=device)
    while True:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
