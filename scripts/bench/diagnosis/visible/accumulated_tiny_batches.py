"""A batch of 64 is split into 32 tiny batches whose gradients are accumulated."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "launch"
DEVICE = "cuda"
ALSO = ("python",)
STEPS = 2


def train(device: str) -> Iterator[None]:
    """Train an encoder on two sequences at a time."""
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(64, 32, 128, device=device)
    while True:
        for part in x.split(2):
            loss = model(part).square().mean() / 32
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield
