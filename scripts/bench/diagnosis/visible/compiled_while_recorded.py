"""torch.compile compiles the model in the first recorded step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch._dynamo
from torch import nn

CAUSE = "compile"
WARMUP = 0
ALSO = ("cold_start",)


def train(device: str) -> Iterator[None]:
    """Train a compiled model from its first step."""
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256)).to(device)
    compiled = torch.compile(model, backend="inductor" if device == "cuda" else "aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 256, device=device)
    while True:
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield
