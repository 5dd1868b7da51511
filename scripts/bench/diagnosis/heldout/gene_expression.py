"""Wide layers on a few patients: Adam updates 21 million parameters for batches of 64 rows."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "optimizer"
STEPS = 2
DEVICE = "cpu"


def train(device: str) -> Iterator[None]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8000, 2048),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(2048, 1024),
        nn.ReLU(),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, 30),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-5)
    while True:
        expression, tissue = torch.rand(16, 8000), torch.randint(0, 30, (16,))
        loss = nn.functional.cross_entropy(model(expression), tissue)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
