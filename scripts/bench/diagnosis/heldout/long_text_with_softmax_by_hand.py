"""An encoder for long texts writes out its attention with matmul, masked_fill and softmax over 1024 positions."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "attention"
DEVICE = "cpu"
ALSO = ("pointwise", "layer")  # on a CPU, the dropout of the scores takes as long as the softmax


class Attention(nn.Module):
    """Self-attention with a causal mask."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output for one batch."""
        b, s, w = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(w // self.heads)
        mask = torch.ones(s, s, dtype=torch.bool, device=x.device).triu(1)
        weights = self.drop(torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1))
        return self.out((weights @ v).transpose(1, 2).reshape(b, s, w))


def train(device: str) -> Iterator[None]:
    """Predict the next of 1024 random tokens."""
    embed, norm, attention = nn.Embedding(256, 64), nn.LayerNorm(64), Attention(64, 2)
    model = nn.ModuleList([embed, norm, attention, nn.Linear(64, 256)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 256, (1, 1025), device=device)
    while True:
        h = embed(tokens[:, :-1])
        h = h + attention(norm(h))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model[3](h).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        yield
