"""A service that answers its first requests: context, cuBLAS and cuDNN are set up inside the profiled steps."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "cold_start"
DEVICE = "cuda"
WARMUP = 0
ALSO = ("compile", "launch", "sync")


@torch.inference_mode()
def train(device: str) -> Iterator[None]:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 7, stride=4), nn.ReLU(), nn.Conv2d(32, 96, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(), nn.Linear(1536, 256), nn.ReLU(), nn.Linear(256, 20),
    ).eval()  # fmt: skip
    model.to(device)
    while True:
        picture = torch.rand(1, 3, 320, 320)
        model(picture.to(device)).softmax(1).cpu()
        yield
