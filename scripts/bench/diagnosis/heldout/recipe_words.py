"""A recipe writer scores a hundred thousand words for each position, so that its loss outweighs its network."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "loss"
DEVICE = "cpu"
WORDS = 100_000


class Writer(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(4096, width, sparse=True)
        self.body = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        self.vocabulary = nn.Linear(width, WORDS, bias=False)

    def forward(self, context: Tensor) -> Tensor:
        scores: Tensor = self.vocabulary(self.body(self.words(context)))
        return scores


def train(device: torch.device) -> Iterator[None]:
    model = Writer().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    context = torch.randint(4096, (384, 12), device=device)
    following = torch.randint(WORDS, (384,), device=device)
    while True:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(context), following, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        yield
