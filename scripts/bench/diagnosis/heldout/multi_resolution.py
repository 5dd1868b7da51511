"""Detection at many resolutions: `cudnn.benchmark` searches again for every image size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "changing_shapes"
DEVICE = "cuda"
ALSO = ("memory", "cold_start")

SIZES = itertools.count(192, 32)


class Backbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = [3, 32, 64, 64, 128, 128]
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, 3, 1 + number % 2, 1) for number, (a, b) in enumerate(itertools.pairwise(widths))
        )
        self.boxes = nn.Conv2d(128, 5, 1)

    def forward(self, image: Tensor) -> Tensor:
        for layer in self.convs:
            image = torch.relu(layer(image))
        boxes: Tensor = self.boxes(image)
        return boxes


def train(device: str) -> Iterator[None]:
    torch.backends.cudnn.benchmark = True
    model = Backbone().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for size in SIZES:
        images = torch.rand(4, 3, size, size + 64, device=device)
        loss = model(images).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
