"""The dataset parses each record from text when the loader asks for it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CAUSE = "data"
ALSO = ("python",)


class Records(Dataset[tuple[Tensor, Tensor]]):
    """Records as lines of JSON."""

    def __init__(self) -> None:
        self.lines = [json.dumps({"x": [i * j % 97 / 97 for j in range(2000)], "y": i % 5}) for i in range(256)]

    def __len__(self) -> int:
        return 1 << 16

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        record = json.loads(self.lines[index % len(self.lines)])
        return torch.tensor(record["x"]), torch.tensor(record["y"])


def train(device: str) -> Iterator[None]:
    """Train a linear classifier."""
    model = nn.Sequential(nn.Linear(2000, 64), nn.ReLU(), nn.Linear(64, 5)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(Records(), batch_size=256, shuffle=True):
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
