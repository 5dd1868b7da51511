"""A mobile network on a GPU: 5 x 5 depthwise convolutions need little arithmetic and most of the time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import relu6

CAUSE = "depthwise"
DEVICE = "cuda"
ALSO = ("pointwise",)


class Inverted(nn.Module):
    def __init__(self, width: int, expansion: int = 6) -> None:
        super().__init__()
        middle = width * expansion
        self.expand = nn.Conv2d(width, middle, 1, bias=False)
        self.depthwise = nn.Conv2d(middle, middle, 5, padding=2, groups=middle, bias=False)
        self.project = nn.Conv2d(middle, width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.project(relu6(self.depthwise(relu6(self.expand(x)))))
        return out


def train(device: str) -> Iterator[None]:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=4, padding=1),
        *(Inverted(32) for _ in range(5)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    frames, kinds = torch.rand(64, 3, 320, 320, device=device), torch.randint(0, 4, (64,), device=device)
    while True:
        loss = nn.functional.cross_entropy(model(frames), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
