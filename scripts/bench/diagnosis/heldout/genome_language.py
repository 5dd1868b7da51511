"""A language model of genomes: attention with an explicit score matrix, mask, softmax and dropout, over 2,048 tokens."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "attention"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("Genome", "-i", "4,2048:int64[0:4096]", "--amp", "bfloat16")
DEVICE = "cuda"
ALSO = ("pointwise",)


class CausalAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q, k.transpose(2, 3)) * (width // self.heads) ** -0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        weights = nn.functional.dropout(weights, 0.1, self.training)
        mixed: Tensor = self.out(torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, width))
        return mixed


class Genome(nn.Module):
    def __init__(self, width: int = 512, heads: int = 8, depth: int = 4) -> None:
        super().__init__()
        self.bases = nn.Embedding(4096, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.attention = nn.ModuleList(CausalAttention(width, heads) for _ in range(depth))
        self.following = nn.Linear(width, 4096, bias=False)

    def forward(self, bases: Tensor) -> Tensor:
        x = self.bases(bases)
        for norm, attention in zip(self.norms, self.attention, strict=True):
            x = x + attention(norm(x))
        logits: Tensor = self.following(x)
        return logits


def train(device: str) -> Iterator[None]:
    model = Genome().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    bases = torch.randint(0, 4096, (4, 2049), device=device)
    while True:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(bases[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), bases[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield
