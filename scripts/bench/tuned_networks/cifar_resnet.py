"""ResNet-18 for images of 32x32 (after He et al., "Deep Residual Learning for Image Recognition", 2015)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """The features after the block."""
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Four stages of two blocks."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        blocks, inputs = [], 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
            inputs = outputs
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = self.blocks(F.relu(self.bn(self.conv(x))))
        scores: Tensor = self.head(F.avg_pool2d(x, 4).flatten(1))
        return scores


def example_inputs() -> Tensor:
    """A batch of images."""
    return torch.randn(128, 3, 32, 32)


def configure_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
