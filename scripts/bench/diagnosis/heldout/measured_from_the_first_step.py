"""The very first steps are measured, where cuDNN tries its algorithms for every shape and libraries are loaded."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import nn

CAUSE = "cold_start"
DEVICE = "cuda"
WARMUP = 0
ALSO = ("launch",)


def train(device: str) -> Iterator[None]:
    """Train an autoencoder with cudnn.benchmark on."""
    torch.backends.cudnn.benchmark = True
    widths = [3, 32, 48, 64, 96, 128]
    down: list[nn.Module] = []
    up: list[nn.Module] = []
    for a, b in pairwise(widths):
        down += [nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.SiLU()]
        up = [nn.ConvTranspose2d(b, a, 4, stride=2, padding=1), nn.SiLU(), *up]
    model = nn.Sequential(*down, *up[:-1]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.rand(8, 3, 128, 128, device=device)
    while True:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x).backward()
        optimizer.step()
        yield
