"""A segmenter checkpoints its stages and each block inside them, so that backward computes the network twice more."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CAUSE = "recompute"
DEVICE = "cpu"


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, ice: Tensor) -> Tensor:
        return torch.relu(ice + self.body(ice))


class Stage(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(3)])

    def forward(self, ice: Tensor) -> Tensor:
        for block in self.blocks:
            ice = checkpoint(block, ice, use_reentrant=False)
        return ice


class Segmenter(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 4, stride=4)
        self.stages = nn.ModuleList([Stage(width) for _ in range(2)])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, ice: Tensor) -> Tensor:
        ice = self.stem(ice)
        for stage in self.stages:
            ice = checkpoint(stage, ice, use_reentrant=False)
        cracks: Tensor = self.head(ice)
        return cracks


def train(device: torch.device) -> Iterator[None]:
    model = Segmenter().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    ice = torch.randn(4, 1, 192, 192, device=device)
    cracks = torch.randint(2, (4, 48, 48), device=device)
    while True:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ice), cracks)
        loss.backward()
        optimizer.step()
        yield
