"""A poem scorer computes relative attention with einsum, a mask and a softmax over tables of all pairs of characters."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "attention"
DEVICE = "cpu"


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, letters: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = letters.shape
        projected = self.query_key_value(self.norm(letters)).view(batch, length, 3, self.heads, -1)
        query, key, value = projected.unbind(2)
        weights = torch.einsum("blhd,bmhd->bhlm", query, key) * (width // self.heads) ** -0.5
        weights = weights.masked_fill(mask, float("-inf")).softmax(-1)
        weights = nn.functional.dropout(weights, 0.1, self.training)
        poem: Tensor = letters + self.out(torch.einsum("bhlm,bmhd->blhd", weights, value).reshape(batch, length, width))
        return poem


class Meter(nn.Module):
    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.letters = nn.Embedding(96, width)
        self.layers = nn.ModuleList([Layer(width, 8) for _ in range(3)])
        self.head = nn.Linear(width, 4)

    def forward(self, poem: Tensor) -> Tensor:
        mask = torch.ones(poem.shape[1], poem.shape[1], dtype=torch.bool, device=poem.device).triu(1)
        letters = self.letters(poem)
        for layer in self.layers:
            letters = layer(letters, mask)
        stress: Tensor = self.head(letters)
        return stress


def train(device: torch.device) -> Iterator[None]:
    model = Meter().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    poems = torch.randint(96, (2, 768), device=device)
    stress = torch.randint(4, (2, 768), device=device)
    while True:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(poems).flatten(0, 1), stress.flatten())
        loss.backward()
        optimizer.step()
        yield
