"""Ads: dense gradients of tables with 12 million rows are zeroed, filled and applied for 4,096 lookups."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "embedding"
DEVICE = "cuda"
ALSO = ("optimizer", "pointwise")


class AdModel(nn.Module):
    def __init__(self, rows: int = 6_000_000, width: int = 64) -> None:
        super().__init__()
        with torch.device("cuda"):
            self.users = nn.Embedding(rows, width)
            self.ads = nn.Embedding(rows, width)
            self.tower = nn.Sequential(nn.Linear(2 * width, 256), nn.ReLU(), nn.Linear(256, 1))
        self.rows = rows

    def forward(self, user: Tensor, ad: Tensor) -> Tensor:
        score: Tensor = self.tower(torch.cat([self.users(user), self.ads(ad)], 1))
        return score[:, 0]


def train(device: str) -> Iterator[None]:
    model = AdModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        user, ad = torch.randint(0, model.rows, (2, 4096), device=device)
        clicked = torch.rand(4096, device=device).round()
        loss = nn.functional.binary_cross_entropy_with_logits(model(user, ad), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
