"""A surrogate of orbits: NumPy data is float64, so the author converted the model with `.double()`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

CAUSE = "float64"
DEVICE = "cpu"
FORMS = ("stacks",)
ALSO = ("precision",)


def train(device: str) -> Iterator[None]:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(8192, 96))
    targets = np.sin(states).cumsum(axis=1)
    model = nn.Sequential(
        nn.Linear(96, 768),
        nn.SiLU(),
        nn.Linear(768, 768),
        nn.SiLU(),
        nn.Linear(768, 768),
        nn.SiLU(),
        nn.Linear(768, 96),
    ).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(16):
        rows = slice(512 * step, 512 * (step + 1))
        x, y = torch.from_numpy(states[rows]), torch.from_numpy(targets[rows])
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
