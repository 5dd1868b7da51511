"""A scent predictor keeps a small linear map for each ingredient, and RAdam updates the many tensors one by one."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "optimizer"
DEVICE = "cpu"


class Scent(nn.Module):
    def __init__(self, ingredients: int = 70) -> None:
        super().__init__()
        self.gains = nn.ParameterList([nn.Parameter(torch.rand(48)) for _ in range(ingredients)])
        self.head = nn.Linear(48, 12)

    def forward(self, amounts: Tensor) -> Tensor:
        smells: Tensor = self.head(amounts @ torch.stack(list(self.gains)))
        return smells


def train(device: torch.device) -> Iterator[None]:
    model = Scent().to(device)
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-3, weight_decay=1e-4, foreach=False)
    amounts, smells = torch.rand(64, 70, device=device), torch.rand(64, 12, device=device)
    while True:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(amounts), smells)
        loss.backward()
        optimizer.step()
        yield
