"""A vision transformer adds a learned bias to its scores and writes out softmax in bfloat16 instead of a fused attention."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "attention"
DEVICE = "cuda"
ALSO = ("pointwise", "memory")


class Attention(nn.Module):
    """Attention over 2304 patches with a bias per head."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros(heads, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output for one batch."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5 + self.bias
        weights = scores.softmax(dim=-1)
        return self.out(torch.einsum("bhqk,bhkd->bhqd", weights, v).transpose(1, 2).flatten(2))


def train(device: str) -> Iterator[None]:
    """Train three layers on patches of large pictures."""
    layers = nn.ModuleList(Attention(512, 8) for _ in range(3)).to(device, torch.bfloat16)
    norm = nn.LayerNorm(512).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW([*layers.parameters(), *norm.parameters()], lr=1e-4)
    x = torch.randn(8, 2304, 512, device=device, dtype=torch.bfloat16)
    while True:
        h = x
        for layer in layers:
            h = h + layer(norm(h))
        optimizer.zero_grad()
        h.square().mean().backward()
        optimizer.step()
        yield
