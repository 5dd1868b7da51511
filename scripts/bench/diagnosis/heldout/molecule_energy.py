"""Energies of molecules: NumPy coordinates make the whole network float64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

CAUSE = "float64"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("Energy", "-i", "8192,192", "--dtype", "float64")
DEVICE = "cuda"
ALSO = ("precision",)


class Energy(nn.Module):
    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.embed = nn.Linear(192, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.energy = nn.Linear(width, 1)

    def forward(self, positions: Tensor) -> Tensor:
        x = torch.tanh(self.embed(positions))
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        energy: Tensor = self.energy(x)
        return energy


def train(device: str) -> Iterator[None]:
    rng = np.random.default_rng(0)
    positions = torch.from_numpy(rng.normal(size=(8192, 192))).to(device)
    energies = torch.from_numpy(rng.normal(size=(8192, 1))).to(device)
    model = Energy().to(positions)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    while True:
        loss = nn.functional.mse_loss(model(positions), energies)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
