"""A transformer trains in bfloat16 with fused attention and large batches."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "nothing"
DEVICE = "cuda"


def train(device: str) -> Iterator[None]:
    """Train eight layers of a transformer."""
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(16, 1024, 1024, device=device, dtype=torch.bfloat16)
    while True:
        loss = model(x).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
