"""Every width of a bfloat16 perceptron is a multiple of 512 plus one, which no fast tensor-core kernel takes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "channels"
DEVICE = "cuda"


class WithBias(nn.Module):
    """A layer whose constant input of one replaces its bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width + 1, width + 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output for one batch."""
        return nn.functional.relu(self.linear(x))


def train(device: str) -> Iterator[None]:
    """Train six layers of 3073 units."""
    model = nn.Sequential(*(WithBias(3072) for _ in range(6))).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(8192, 3073, device=device, dtype=torch.bfloat16)
    while True:
        optimizer.zero_grad(set_to_none=True)
        model(x).float().square().mean().backward()
        optimizer.step()
        yield
