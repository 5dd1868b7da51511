"""Segments of satellite images: stages and their blocks are both checkpointed, although memory is far from full."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CAUSE = "recompute"
STEPS = 2
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("Segmenter", "-i", "2,4,64,64")
DEVICE = "cpu"


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.conv2(torch.relu(self.conv1(x)))
        return out


class Stage(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x


class Segmenter(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(4, width, 3, padding=1)
        self.stages = nn.ModuleList(Stage(width, 2) for _ in range(2))
        self.head = nn.Conv2d(width, 6, 1)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        for stage in self.stages:
            x = checkpoint(stage, x, use_reentrant=True)
        classes: Tensor = self.head(x)
        return classes


def train(device: str) -> Iterator[None]:
    model = Segmenter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        images, classes = torch.rand(2, 4, 64, 64), torch.randint(0, 6, (2, 64, 64))
        loss = nn.functional.cross_entropy(model(images), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
