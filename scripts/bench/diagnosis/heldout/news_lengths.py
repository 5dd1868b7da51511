"""News topics: each batch has another length, and `dynamic=False` compiles the model again for each length."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "changing_shapes"
DEVICE = "cuda"
WARMUP = 2
FORMS = ("plain",)
ALSO = ("compile", "launch")


class Topics(nn.Module):
    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.words = nn.Embedding(20_000, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 256, 0.0, batch_first=True) for _ in range(1))
        self.topics = nn.Linear(width, 20)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.topics(x.mean(1))
        return logits


def train(device: str) -> Iterator[None]:
    model = Topics().to(device)
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in itertools.count():
        words = torch.randint(0, 20_000, (32, 24 + 8 * step), device=device)
        topics = torch.randint(0, 20, (32,), device=device)
        loss = nn.functional.cross_entropy(compiled(words), topics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
