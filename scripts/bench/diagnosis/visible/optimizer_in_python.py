"""A hand-written optimizer updates many small parameters with a dozen operators each."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "optimizer"
ALSO = ("launch", "python", "pointwise")


def train(device: str) -> Iterator[None]:
    """Train a deep and narrow perceptron with a rule of its own."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(24, 24), nn.LayerNorm(24)) for _ in range(20))).to(device)
    means = [torch.zeros_like(parameter) for parameter in model.parameters()]
    squares = [torch.zeros_like(parameter) for parameter in model.parameters()]
    optimizer = Trusted(list(model.parameters()), means, squares)
    x = torch.randn(32, 24, device=device)
    while True:
        loss = model(x).square().mean()
        model.zero_grad()
        loss.backward()
        optimizer.step()
        yield


class Trusted(torch.optim.Optimizer):
    """Adam with a trust ratio for each parameter (LAMB)."""

    def __init__(self, parameters: list[nn.Parameter], means: list[torch.Tensor], squares: list[torch.Tensor]) -> None:
        super().__init__(parameters, {"lr": 1e-3})
        self.moments = list(zip(parameters, means, squares, strict=True))

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Update each parameter."""
        for parameter, mean, square in self.moments:
            gradient = parameter.grad
            if gradient is not None:
                mean.mul_(0.9).add_(gradient, alpha=0.1)
                square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                update = mean / (square.sqrt() + 1e-6) + 0.01 * parameter
                ratio = (parameter.norm() / update.norm().clamp(min=1e-6)).clamp(max=10)
                parameter.sub_(1e-3 * ratio * update)
