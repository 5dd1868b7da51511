"""A forward pass selects rows with boolean masks, which waits for the device."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "sync"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("Masked", "-i", "16384,1024", "--optimizer", "sgd")
DEVICE = "cuda"
ALSO = ("copies", "precision", "layer", "pointwise")


class Masked(nn.Module):
    """Layers that only treat positive rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(12))

    def forward(self, x: Tensor) -> Tensor:
        """Treat the rows whose mean is not very low."""
        for layer in self.layers:
            active = x.mean(1) > -10
            x = x.clone()
            x[active] = layer(x[active]).relu()
        return x


def train(device: str) -> Iterator[None]:
    """Evaluate the layers and train them."""
    model = Masked().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(16384, 1024, device=device)
    while True:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield
