"""Text generation with a growing key-value cache, batch 1: cuDNN's attention builds a plan for each new length."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "changing_shapes"
ALSO = ("launch",)
DEVICE = "cuda"
STEPS = 2


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads = heads

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x)))), (k, v)


class Chat(nn.Module):
    def __init__(self, width: int = 512, depth: int = 12, heads: int = 8) -> None:
        super().__init__()
        self.tokens = nn.Embedding(16_000, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.next = nn.Linear(width, 16_000, bias=False)

    def forward(self, token: Tensor, caches: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        x, updated = self.tokens(token), []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer(x, cache)
            updated.append(cache)
        return self.next(x), updated


@torch.inference_mode()
def train(device: str) -> Iterator[None]:
    model = Chat().to(device).to(torch.bfloat16).eval()
    empty = torch.zeros(1, 8, 64, 64, device=device, dtype=torch.bfloat16)
    caches = [(empty, empty)] * 12
    token = torch.zeros(1, 1, dtype=torch.long, device=device)
    while True:
        logits, caches = model(token, caches)
        token = logits[:, -1].argmax(-1, keepdim=True)
        yield
