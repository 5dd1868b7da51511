"""Text is tokenized with regular expressions between the steps."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "python"
ALSO = ("data", "launch")


TEXT = "the quick brown fox jumps over the lazy dog, again and again. " * 400


def batches() -> Iterator[Tensor]:
    """Yield ids of words, tokenized anew for every batch."""
    while True:
        rows = []
        for row in range(32):
            words = re.findall(r"\w+|[^\w\s]", TEXT[row:])
            rows.append([hash(word) % 1000 for word in words][:64])
        yield torch.tensor(rows)


def train(device: str) -> Iterator[None]:
    """Train a bag of words."""
    model = nn.Sequential(nn.EmbeddingBag(1000, 64), nn.Linear(64, 2)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for ids in batches():
        with torch.profiler.record_function("forward"):
            loss = model(ids.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
