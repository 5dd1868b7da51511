"""A trading agent: each order becomes its own small tensor on the GPU, with one synchronous copy per order."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "host_copies"
DEVICE = "cuda"
STEPS = 2
ALSO = ("sync", "launch")


def train(device: str) -> Iterator[None]:
    rng = random.Random(0)
    encoder = nn.Sequential(nn.Linear(6, 128), nn.ReLU(), nn.Linear(128, 128)).to(device)
    action = nn.Linear(128, 3).to(device)
    optimizer = torch.optim.Adam([*encoder.parameters(), *action.parameters()], lr=1e-3)
    while True:
        orders = [[rng.random() for _ in range(6)] for _ in range(150)]
        book = torch.stack([torch.tensor(order, device=device) for order in orders])
        targets = torch.stack([torch.tensor(rng.randrange(3)).to(device) for _ in orders])
        loss = nn.functional.cross_entropy(action(encoder(book)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
