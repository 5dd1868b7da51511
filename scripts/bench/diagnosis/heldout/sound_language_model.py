"""Nothing is wrong: a transformer in bfloat16 with fused attention, wide layers and a full batch keeps the tensor cores busy."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "nothing"
DEVICE = "cuda"


class Block(nn.Module):
    """A block of a decoder."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output for one batch."""
        q, k, v = (part.unflatten(-1, (-1, 128)).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, dim=-1))
        h = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(h.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


def train(device: str) -> Iterator[None]:
    """Train four wide blocks."""
    blocks = nn.Sequential(*(Block(4096) for _ in range(4))).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(blocks.parameters(), lr=1e-4, fused=True)
    x = torch.randn(4, 2048, 4096, device=device, dtype=torch.bfloat16)
    while True:
        optimizer.zero_grad(set_to_none=True)
        blocks(x).mean().backward()
        optimizer.step()
        yield
