"""The forward pass builds a large mask on the host and copies it to the device."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "host_copies"
DEVICE = "cuda"
ALSO = ("sync", "cpu_fallback", "python", "data")


class Masked(nn.Module):
    """Layers that multiply with a mask from the host."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.masks = [torch.ones(8192, width) for _ in range(4)]

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers to the values that a mask keeps."""
        for layer, mask in zip(self.layers, self.masks, strict=True):
            x = layer(x * mask.to(x.device)).relu()
        return x


def train(device: str) -> Iterator[None]:
    """Train the layers."""
    model = Masked(1024).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(8192, 1024, device=device)
    while True:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
