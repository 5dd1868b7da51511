"""Faces: 31 x 31 depthwise convolutions; one layer holds few parameters and nearly all of the time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "depthwise"
DEVICE = "cuda"
ALSO = ("layer",)


class LargeKernel(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = nn.Conv2d(width, width, 31, padding=15, groups=width, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.mix = nn.Conv2d(width, width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.mix(nn.functional.gelu(self.norm(self.wide(x))))
        return out


def train(device: str) -> Iterator[None]:
    model = nn.Sequential(
        nn.Conv2d(3, 128, 4, stride=4),
        *(LargeKernel(128) for _ in range(3)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 64),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    faces, identity = torch.rand(16, 3, 128, 128, device=device), torch.randint(0, 64, (16,), device=device)
    while True:
        loss = nn.functional.cross_entropy(model(faces), identity)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
