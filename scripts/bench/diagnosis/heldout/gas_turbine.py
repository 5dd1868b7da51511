"""A turbine model: hand-written normalization, rotation and gating run as dozens of separate elementwise kernels."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "pointwise"
DEVICE = "cuda"


class Gate(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift, self.decay = (nn.Parameter(torch.ones(width)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.scale + self.shift
        left, right = x.chunk(2, -1)
        rotated = torch.cat([left * torch.cos(right) - right * torch.sin(left), left + right], -1)
        smooth = 0.5 * rotated * (1 + torch.erf(rotated / 1.41421356))
        return x + smooth * torch.sigmoid(self.decay * x) * torch.exp(-smooth.abs())


def train(device: str) -> Iterator[None]:
    model = nn.Sequential(nn.Linear(64, 256), *(Gate(256) for _ in range(6)), nn.Linear(256, 8)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    readings, states = torch.randn(65_536, 64, device=device), torch.randn(65_536, 8, device=device)
    while True:
        loss = nn.functional.mse_loss(model(readings), states)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
