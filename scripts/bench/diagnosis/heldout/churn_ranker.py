"""Churn prediction: `torch.compile` runs inside the profiled steps, without a warm-up."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "compile"
DEVICE = "cpu"
WARMUP = 0
ALSO = ("changing_shapes", "cold_start")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))
        return out


def train(device: str) -> Iterator[None]:
    model = nn.Sequential(nn.Linear(30, 48), *(Block(48) for _ in range(3)), nn.Linear(48, 1))
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        customers, churned = torch.randn(256, 30), torch.rand(256, 1).round()
        loss = nn.functional.binary_cross_entropy_with_logits(compiled(customers), churned)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
