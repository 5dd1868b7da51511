"""The "slow small network" of StackOverflow question 51124101: one large convolution at full resolution.

Maps a 3x256x256 image to two scores on a 64x64 map.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ConvNetV0(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 30, 4, padding=2)
        self.conv2 = nn.Conv2d(30, 50, 16, padding=7)
        self.conv3 = nn.Conv2d(50, 20, 2, stride=2)
        self.conv4 = nn.Conv2d(20, 2, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.relu(self.conv3(x))
        out: Tensor = self.conv4(x)
        return out


def example_inputs() -> Tensor:
    return torch.randn(8, 3, 256, 256)


def configure_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
