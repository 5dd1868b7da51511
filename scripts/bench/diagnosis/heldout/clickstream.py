"""A recommender on click logs: `__getitem__` hashes raw strings in Python, and the DataLoader has no workers."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CAUSE = "data"
STEPS = 2

FIELDS = ["country", "browser", "campaign", "hour", "referrer", "device", "category", "brand"]
BUCKETS = 20_000


class ClickLog(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, rows: int) -> None:
        rng = random.Random(1)
        self.rows = [[f"{name}={rng.randrange(10**6)}" for name in FIELDS] for _ in range(rows)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        row = self.rows[index]
        crosses = row + [f"{a}&{b}" for a in row for b in row]
        codes = [int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), 16) % BUCKETS for text in crosses]
        return torch.tensor(codes), torch.tensor(float(index % 2))


class ClickModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.EmbeddingBag(BUCKETS, 16, mode="sum", sparse=True)
        self.head = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, codes: Tensor) -> Tensor:
        out: Tensor = self.head(self.codes(codes))
        return out.squeeze(1)


def train(device: str) -> Iterator[None]:
    loader = DataLoader(ClickLog(4096), batch_size=48, shuffle=True)
    model = ClickModel().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for codes, clicked in loader:
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(codes.to(device)), clicked.to(device))
        loss.backward()
        optimizer.step()
        yield
