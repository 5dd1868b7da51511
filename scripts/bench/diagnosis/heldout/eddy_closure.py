"""A turbulence closure writes its smooth limiter as fifteen elementwise passes over the full grid."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "pointwise"
DEVICE = "cpu"


def limiter(strain: Tensor, floor: Tensor) -> Tensor:
    ratio = strain / (strain.abs() + floor.exp())
    blend = 0.5 * (1 + torch.tanh(4 * (ratio - 0.25)))
    damped = strain * blend - 0.1 * strain * ratio * ratio
    return damped / torch.sqrt(1 + damped * damped)


class Closure(nn.Module):
    def __init__(self, fields: int = 24) -> None:
        super().__init__()
        self.mix = nn.ModuleList([nn.Conv2d(fields, fields, 1) for _ in range(4)])
        self.floors = nn.ParameterList([nn.Parameter(torch.zeros(fields, 1, 1)) for _ in range(4)])

    def forward(self, fields: Tensor) -> Tensor:
        for mix, floor in zip(self.mix, self.floors, strict=True):
            fields = limiter(mix(fields), floor)
        return fields


def train(device: torch.device) -> Iterator[None]:
    model = Closure().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    fields = torch.randn(4, 24, 128, 128, device=device)
    while True:
        optimizer.zero_grad()
        loss = (model(fields) - fields).square().mean()
        loss.backward()
        optimizer.step()
        yield
