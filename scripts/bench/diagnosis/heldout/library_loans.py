"""A book recommender keeps 600,000 rows in one table, and Adam updates all of them for the few thousand rows of a batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "optimizer"
ALSO = ("embedding",)
DEVICE = "cpu"


class Recommender(nn.Module):
    def __init__(self, books: int = 600_000, width: int = 32) -> None:
        super().__init__()
        self.books = nn.Embedding(books, width)
        self.tower = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, width))

    def forward(self, history: Tensor, candidate: Tensor) -> Tensor:
        reader = self.tower(self.books(history).mean(1))
        return (reader * self.books(candidate)).sum(-1)


def train(device: torch.device) -> Iterator[None]:
    model = Recommender().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        history = torch.randint(600_000, (256, 20), device=device)
        candidate = torch.randint(600_000, (256,), device=device)
        optimizer.zero_grad()
        score = model(history, candidate)
        nn.functional.binary_cross_entropy_with_logits(score, torch.ones_like(score)).backward()
        optimizer.step()
        yield
