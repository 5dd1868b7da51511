"""Tumor slides: bfloat16 convolutions get NCHW tensors, and cuDNN converts the layout around each of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "layout"
DEVICE = "cuda"
ALSO = ("copies",)


class Bottleneck(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(width, width // 2, 1, bias=False)
        self.spatial = nn.Conv2d(width // 2, width // 2, 3, padding=1, bias=False)
        self.expand = nn.Conv2d(width // 2, width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.expand(self.spatial(self.reduce(x).relu_()).relu_())
        return torch.relu(x + y)


def train(device: str) -> Iterator[None]:
    torch.backends.cudnn.benchmark = True
    model = nn.Sequential(
        nn.Conv2d(3, 128, 7, stride=4, padding=3),
        *(Bottleneck(128) for _ in range(8)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 2),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    slides, tumor = torch.rand(48, 3, 384, 384, device=device), torch.randint(0, 2, (48,), device=device)
    while True:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(slides), tumor)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
