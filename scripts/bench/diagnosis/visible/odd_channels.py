"""Channels that are no multiple of 8 keep bfloat16 convolutions from fast kernels."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "channels"
FORMS = ("stacks", "analyze")
ANALYZE = ("build", "-i", "64,67,56,56", "--amp", "bfloat16", "--channels-last", "--optimizer", "sgd")
DEVICE = "cuda"
ALSO = ("layout", "copies", "autocast")


def build() -> nn.Module:
    """Return eight convolutions of 67 channels."""
    return nn.Sequential(*(nn.Sequential(nn.Conv2d(67, 67, 3, padding=1), nn.ReLU()) for _ in range(8)))


def train(device: str) -> Iterator[None]:
    """Train convolutions of 67 channels."""
    model = build().to(device)
    for parameter in model.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 67, 56, 56, device=device).to(memory_format=torch.channels_last)
    while True:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
