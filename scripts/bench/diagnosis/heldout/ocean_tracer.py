"""A learned closure of an ocean model: long chains of elementwise ops over a full grid."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "pointwise"
STEPS = 2
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("Closure", "-i", "2,1,256,256")
DEVICE = "cpu"


class Closure(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mixing = nn.Parameter(torch.rand(6))
        self.correction = nn.Parameter(torch.rand(256))

    def swirl(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))

    def forward(self, tracer: Tensor) -> Tensor:
        state = tracer
        for rate in self.mixing:
            flux = self.swirl(state) * rate + (1.0 - rate) * state
            state = flux / (1.0 + flux.abs()) - 0.01 * flux * flux + 0.5 * state
        out: Tensor = state + 0.1 * self.correction * tracer
        return out


def train(device: str) -> Iterator[None]:
    model = Closure()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while True:
        tracer = torch.rand(2, 1, 256, 256)
        loss = (model(tracer) - tracer.roll(1, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
