"""A transformer trains in float32, though the device has tensor cores."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "precision"
DEVICE = "cuda"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("build", "-i", "16,512,1024")
ALSO = ("layer",)


def build() -> nn.Module:
    """Return an encoder with fused attention."""
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


def train(device: str) -> Iterator[None]:
    """Train the encoder."""
    torch.backends.cuda.matmul.allow_tf32 = False
    model = build().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(16, 512, 1024, device=device)
    while True:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
