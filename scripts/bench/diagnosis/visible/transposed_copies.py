"""Tensors are permuted and made contiguous between all operations."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "copies"
ALSO = ("pointwise", "layout")


def train(device: str) -> Iterator[None]:
    """Mix channels and positions, with copies between them."""
    side = 512 if device == "cuda" else 128
    x = torch.randn(16, 64, side, side // 4, device=device)
    scale = nn.Parameter(torch.ones(64, device=device))
    optimizer = torch.optim.SGD([scale], lr=1e-3)
    while True:
        h = x.permute(0, 2, 3, 1).contiguous() * scale
        for _ in range(3):
            h = h.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1).contiguous()
        loss = h.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
