"""The "fast large network" of StackOverflow question 51124101: more parameters, but the first layer halves the image.

Maps a 3x256x256 image to two scores on a 64x64 map, with two concatenated branches.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ConvNetV1(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(3, 50, 4, padding=1, stride=2)
        self.conv_r1 = nn.Conv2d(50, 40, 15, padding=7)
        self.conv_r2 = nn.Conv2d(40, 25, 3, padding=1)
        self.conv_r3 = nn.Conv2d(25, 25, 2, stride=2)
        self.conv_b1 = nn.Conv2d(50, 15, 4, padding=1, stride=2)
        self.conv1 = nn.Conv2d(40, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv0(x))
        x1 = F.relu(self.conv_r1(x))
        x1 = F.relu(self.conv_r2(x1))
        x1 = self.conv_r3(x1)
        x2 = self.conv_b1(x)
        out: Tensor = self.conv1(torch.cat([x1, x2], 1))
        return out


def example_inputs() -> Tensor:
    return torch.randn(8, 3, 256, 256)


def configure_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
