"""A mixture of experts: `torch.where` finds the tokens of each expert, with a wait for each of 16 experts per layer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "sync"
DEVICE = "cuda"
STEPS = 2
ALSO = ("launch",)


class Experts(nn.Module):
    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(experts)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        gate, choice = self.router(tokens).softmax(-1).max(-1)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            (rows,) = torch.where(choice == number)
            if len(rows):
                out = out.index_add(0, rows, expert(tokens[rows]) * gate[rows, None])
        return tokens + out


def train(device: str) -> Iterator[None]:
    model = nn.Sequential(*(Experts(256, 16) for _ in range(2))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randn(4096, 256, device=device)
    while True:
        loss = (model(tokens) - tokens).pow(2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield
