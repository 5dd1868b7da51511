"""A recommender looks up a few hundred songs per step, but the gradient of its table of 400,000 rows is dense."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "embedding"
DEVICE = "cpu"
ALSO = ("optimizer",)


def train(device: str) -> Iterator[None]:
    """Learn whether a listener likes a song."""
    songs = nn.Embedding(400_000, 48).to(device)
    listeners = nn.Embedding(2_000, 48).to(device)
    head = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.SGD([*songs.parameters(), *listeners.parameters(), *head.parameters()], lr=0.1)
    while True:
        song = torch.randint(0, 400_000, (256,), device=device)
        listener = torch.randint(0, 2_000, (256,), device=device)
        liked = torch.rand(256, 1, device=device).round()
        logits = head(torch.cat([songs(song), listeners(listener)], dim=1))
        loss = nn.functional.binary_cross_entropy_with_logits(logits, liked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
