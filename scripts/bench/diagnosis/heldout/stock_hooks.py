"""Stock prices: a debugging hook on each module checks its output for NaN with `if`, and was never removed."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "sync"
DEVICE = "cuda"
ALSO = ("launch",)


def check(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
    if torch.isnan(output).any() or torch.isinf(output).any():
        raise FloatingPointError(f"bad output of {type(module).__name__}")


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + torch.tanh(self.layer(self.norm(x)))
        return out


def train(device: str) -> Iterator[None]:
    model = nn.Sequential(nn.Linear(60, 512), *(Residual(512) for _ in range(10)), nn.Linear(512, 1)).to(device)
    for module in model.modules():
        module.register_forward_hook(check)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    prices, returns = torch.randn(4096, 60, device=device), torch.randn(4096, 1, device=device)
    while True:
        loss = nn.functional.mse_loss(model(prices), returns)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
