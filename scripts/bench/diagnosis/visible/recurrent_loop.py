"""A recurrent cell is applied word by word in Python."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "launch"
ALSO = ("python", "pointwise")


def train(device: str) -> Iterator[None]:
    """Train a language model with a loop over time."""
    cell, head = nn.LSTMCell(64, 64).to(device), nn.Linear(64, 64).to(device)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
    words = torch.randn(24, 4, 64, device=device)
    while True:
        state = (torch.zeros(4, 64, device=device), torch.zeros(4, 64, device=device))
        loss = torch.zeros((), device=device)
        for word in words:
            state = cell(word, state)
            loss = loss + (head(state[0]) - word).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
