"""A transformer over DNA: attention is written as matmul, softmax and matmul, over 512 bases."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "attention"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("Promoter", "-i", "2,512:int64[0:5]")
DEVICE = "cpu"
STEPS = 1
ALSO = ("pointwise",)


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        weights = (q @ k.transpose(-2, -1)) / math.sqrt(width // self.heads)
        weights = torch.softmax(weights, dim=-1)
        mixed: Tensor = (weights @ v).transpose(1, 2).reshape(batch, length, width)
        return mixed


class Promoter(nn.Module):
    def __init__(self, width: int = 64, heads: int = 8) -> None:
        super().__init__()
        self.bases = nn.Embedding(5, width)
        self.attention = nn.ModuleList(SelfAttention(width, heads) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.site = nn.Linear(width, 2)

    def forward(self, bases: Tensor) -> Tensor:
        x = self.bases(bases)
        for attention, norm in zip(self.attention, self.norms, strict=True):
            x = x + attention(norm(x))
        sites: Tensor = self.site(x.mean(1))
        return sites


def train(device: str) -> Iterator[None]:
    model = Promoter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    while True:
        bases, site = torch.randint(0, 5, (2, 512)), torch.randint(0, 2, (2,))
        loss = nn.functional.cross_entropy(model(bases), site)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
