"""The model is compiled with torch.compile, and the recorded steps contain the compilation."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "compile"
DEVICE = "cuda"
WARMUP = 0


def train(device: str) -> Iterator[None]:
    """Train a compiled perceptron."""
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 512)).to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(4096, 512, device=device)
    while True:
        with torch.autocast(device.split(":")[0], dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(compiled(x).float(), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
