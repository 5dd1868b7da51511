"""Products on a shelf: one 13 x 13 convolution at full resolution takes most of the step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "layer"
FORMS = ("stacks", "analyze")
ANALYZE = ("Heatmap", "-i", "2,3,96,96", "--loss", "mse")
DEVICE = "cpu"


class Heatmap(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.context = nn.Conv2d(16, 24, 13, padding=6)
        self.reduce = nn.Conv2d(24, 16, 3, stride=2, padding=1)
        self.score = nn.Conv2d(16, 4, 1)

    def forward(self, image: Tensor) -> Tensor:
        x = torch.relu(self.stem(image))
        x = torch.relu(self.context(x))
        x = torch.relu(self.reduce(x))
        scores: Tensor = self.score(x)
        return scores


def train(device: str) -> Iterator[None]:
    model = Heatmap()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    while True:
        images, heat = torch.rand(2, 3, 96, 96), torch.rand(2, 4, 48, 48)
        loss = nn.functional.mse_loss(model(images), heat)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
