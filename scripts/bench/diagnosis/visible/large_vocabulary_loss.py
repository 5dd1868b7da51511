"""The softmax over a large vocabulary and its loss take most of a step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "loss"
ALSO = ("pointwise", "layer", "precision")


def train(device: str) -> Iterator[None]:
    """Train a bag of words that predicts one of many words."""
    words, width, batch = (128_000, 32, 4096) if device == "cuda" else (30_000, 8, 256)
    head = nn.Linear(width, words).to(device)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    x, y = torch.randn(batch, width, device=device), torch.randint(words, (batch,), device=device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    while True:
        loss = criterion(head(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
