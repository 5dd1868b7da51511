"""A text encoder trains with PyTorch's own attention and wide layers on full batches: there is nothing to repair."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "nothing"
DEVICE = "cpu"


def train(device: torch.device) -> Iterator[None]:
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tales = torch.randn(16, 128, 512, device=device)
    while True:
        optimizer.zero_grad()
        loss = (model(tales) - tales).square().mean()
        loss.backward()
        optimizer.step()
        yield
