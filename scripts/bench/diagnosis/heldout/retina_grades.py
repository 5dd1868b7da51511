"""Retina grades: `foreach=False` makes AdamW launch a dozen small kernels for each of 160 parameters."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "optimizer"
DEVICE = "cuda"
STEPS = 2
ALSO = ("launch",)


class Thin(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.layer(self.norm(x)).relu()
        return out


def train(device: str) -> Iterator[None]:
    model = nn.Sequential(nn.Linear(768, 192), *(Thin(192) for _ in range(40)), nn.Linear(192, 5)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    features, grades = torch.randn(512, 768, device=device), torch.randint(0, 5, (512,), device=device)
    while True:
        loss = nn.functional.cross_entropy(model(features), grades)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
