"""Attention is a product, a softmax and a product, with all scores in memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "attention"
ALSO = ("pointwise", "layer", "copies", "autocast")


class Attention(nn.Module):
    """Attention as in the paper, written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attend from each token to all tokens."""
        batch, tokens, width = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        mixed: Tensor = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, width))
        return mixed


def train(device: str) -> Iterator[None]:
    """Train four blocks of attention on long sequences."""
    width, tokens = (512, 2048) if device == "cuda" else (32, 512)
    model = nn.Sequential(*(Attention(width, 8) for _ in range(4))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(4, tokens, width, device=device)
    while True:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
