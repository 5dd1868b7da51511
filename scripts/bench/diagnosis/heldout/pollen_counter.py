"""Pollen counts on a small board: 9 x 9 depthwise convolutions take most of the time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "depthwise"
STEPS = 2
DEVICE = "cpu"
FORMS = ("stacks",)
ALSO = ("layer",)


class Separable(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 9, padding=4, groups=width, bias=False)
        self.pointwise = nn.Conv2d(width, width, 1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + torch.relu(self.norm(self.pointwise(self.depthwise(x))))
        return out


def train(device: str) -> Iterator[None]:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 4, stride=4),
        *(Separable(32) for _ in range(5)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 1),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        images, counts = torch.rand(4, 3, 192, 192), 20 * torch.rand(4, 1)
        loss = nn.functional.mse_loss(model(images), counts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
