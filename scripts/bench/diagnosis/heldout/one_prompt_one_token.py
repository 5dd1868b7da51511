"""A small decoder generates one token at a time for a single prompt, so that every kernel is tiny."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "launch"
DEVICE = "cuda"
ALSO = ("python",)


class Block(nn.Module):
    """A decoder block with a cache of keys and values."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, cache: Tensor, position: int) -> Tensor:
        """Compute the output for one batch."""
        q, k, v = self.qkv(self.first(x)).view(1, 1, 3, 8, 64).permute(2, 0, 3, 1, 4)
        cache[0, :, :, position : position + 1] = k
        cache[1, :, :, position : position + 1] = v
        keys, values = cache[:, :, :, : position + 1]
        h = nn.functional.scaled_dot_product_attention(q, keys, values)
        x = x + self.out(h.transpose(1, 2).reshape(1, 1, 512))
        return x + self.mlp(self.second(x))


def train(device: str) -> Iterator[None]:
    """Generate 16 tokens per step."""
    blocks = nn.ModuleList(Block(512) for _ in range(8)).to(device, torch.bfloat16).eval()
    embed = nn.Embedding(1000, 512).to(device, torch.bfloat16)
    token = torch.zeros(1, 1, dtype=torch.long, device=device)
    caches = torch.zeros(8, 2, 1, 8, 16, 64, device=device, dtype=torch.bfloat16)
    while True:
        for position in range(16):
            with torch.inference_mode():
                h = embed(token)
                for block, cache in zip(blocks, caches, strict=True):
                    h = block(h, cache, position)
                token = (h @ embed.weight.T).argmax(dim=-1)
        yield
