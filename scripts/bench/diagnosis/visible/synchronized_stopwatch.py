"""The loop times each layer with a stopwatch and torch.cuda.synchronize()."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "sync"
DEVICE = "cuda"
ALSO = ("launch", "python")


def train(device: str) -> Iterator[None]:
    """Evaluate a perceptron, layer by layer, with a stopwatch."""
    layers = nn.ModuleList(nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(16)).to(
        device, torch.bfloat16
    )
    x = torch.randn(2048, 2048, device=device, dtype=torch.bfloat16)
    seconds = [0.0] * len(layers)
    with torch.inference_mode():
        while True:
            h = x
            for index, layer in enumerate(layers):
                torch.cuda.synchronize()
                start = time.perf_counter()
                h = layer(h)
                torch.cuda.synchronize()
                seconds[index] += time.perf_counter() - start
            yield
