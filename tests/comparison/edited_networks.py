"""A small residual network whose constructor has the edits of pull requests as arguments."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from profiler_kit import count
from profiler_kit.comparison.compare import compare
from profiler_kit.records.comparison import Comparison
from profiler_kit.records.report import Report


class Block(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        is_same = stride == 1 and channels_in == channels
        self.down = nn.Identity() if is_same else nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.down(x))


class ResBlock(Block):
    pass


class GeluBlock(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = nn.functional.gelu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.down(x))


GeluBlock.__name__ = "Block"


class Net(nn.Module):
    def __init__(
        self,
        *,
        width: int = 8,
        stride: int = 2,
        depth: tuple[int, ...] = (1, 2, 2),
        last: str = "layer3",
        block: Callable[..., nn.Module] = Block,
        classes: int = 10,
        act: Callable[[], nn.Module] = nn.ReLU,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, stride, 3, bias=False), nn.BatchNorm2d(width), act(), nn.MaxPool2d(3, 2, 1)
        )
        self._names = ("layer1", "layer2", last)
        channels = width
        for level, (name, blocks) in enumerate(zip(self._names, depth, strict=True)):
            out = width * 2**level
            parts = [block(channels if i == 0 else out, out, 2 if i == 0 and level else 1) for i in range(blocks)]
            setattr(self, name, nn.Sequential(*parts))
            channels = out
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for name in self._names:
            x = getattr(self, name)(x)
        return self.fc(self.dropout(x.mean((2, 3))))


def counted(model: nn.Module, *shape: int) -> Report:
    return count(model, torch.randn(*(shape or (2, 3, 32, 32))))


def compared(a: Report, b: Report) -> Comparison:
    return compare(a, b, labels=("the base", "this change"))
