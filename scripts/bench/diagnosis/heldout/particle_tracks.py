"""A track fitter updates its Kalman filter hit by hit with matrices of four by four."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "python"
DEVICE = "cpu"


class TrackFitter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.motion = nn.Parameter(torch.eye(4) + 0.01 * torch.randn(4, 4))
        self.noise = nn.Parameter(torch.full((2,), 0.1))
        self.register_buffer("sensor", torch.eye(2, 4))

    def forward(self, hits: Tensor) -> Tensor:
        state, spread = hits.new_zeros(4), torch.eye(4)
        misses = []
        for hit in hits:
            state = self.motion @ state
            spread = self.motion @ spread @ self.motion.T + 0.01 * torch.eye(4)
            miss = hit - self.sensor @ state
            gain = (
                spread @ self.sensor.T @ torch.linalg.inv(self.sensor @ spread @ self.sensor.T + torch.diag(self.noise))
            )
            state = state + gain @ miss
            spread = spread - gain @ self.sensor @ spread
            misses.append(miss.square().sum())
        return torch.stack(misses).mean()


def train(device: torch.device) -> Iterator[None]:
    model = TrackFitter().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    while True:
        optimizer.zero_grad()
        loss = model(torch.rand(12, 2, device=device).cumsum(0) * 0.1)
        loss.backward()
        optimizer.step()
        yield
