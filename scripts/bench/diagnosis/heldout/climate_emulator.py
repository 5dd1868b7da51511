"""A climate emulator: large float32 matrix products run without TF32, which is PyTorch's default."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "precision"
DEVICE = "cuda"


def train(device: str) -> Iterator[None]:
    model = nn.Sequential(
        nn.Linear(2048, 4096),
        nn.ReLU(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Linear(4096, 2048),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    state, tendency = torch.randn(8192, 2048, device=device), torch.randn(8192, 2048, device=device)
    while True:
        loss = nn.functional.mse_loss(model(state), tendency)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield
