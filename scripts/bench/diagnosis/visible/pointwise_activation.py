"""A hand-written activation is a chain of elementwise operators on large maps."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "pointwise"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("Network", "-i", "32768,32")
ALSO = ("precision",)


def activation(x: Tensor) -> Tensor:
    """GELU by its approximation, one operator at a time."""
    return 0.5 * x * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x))) + 0.1 * torch.sigmoid(x) * x


class Network(nn.Module):
    """Layers with this activation."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Apply each layer and the activation."""
        for layer in self.layers:
            x = activation(layer(x))
        return x


def train(device: str) -> Iterator[None]:
    """Train layers whose activations take the time."""
    width, rows = (512, 65536) if device == "cuda" else (32, 32768)
    model = Network(width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(rows, width, device=device)
    while True:
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
