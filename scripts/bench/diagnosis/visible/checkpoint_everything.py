"""Every block is checkpointed, so the backward pass runs the forward pass again."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

CAUSE = "recompute"
DEVICE = "cuda"
ALSO = ("autocast", "layer")


def train(device: str) -> Iterator[None]:
    """Train blocks of which all are recomputed."""
    width, rows = (4096, 8192) if device == "cuda" else (256, 2048)
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(6)).to(device)
    optimizer = torch.optim.SGD(blocks.parameters(), lr=1e-3)
    x = torch.randn(rows, width, device=device)
    while True:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            h = x
            for block in blocks:
                h = checkpoint(block, h, use_reentrant=False)
            loss = h.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
