"""A NumPy table without a dtype is float64, and the model was converted with .double() to make the error message go away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

CAUSE = "float64"
DEVICE = "cpu"
FORMS = ("stacks",)


def train(device: str) -> Iterator[None]:
    """Fit a deep perceptron to a table."""
    rng = np.random.default_rng(0)
    table, target = rng.standard_normal((256, 768)), rng.standard_normal((256, 1))
    x, y = torch.from_numpy(table).to(device), torch.from_numpy(target).to(device)
    model = nn.Sequential(
        nn.Linear(768, 768),
        nn.ReLU(),
        nn.Linear(768, 768),
        nn.ReLU(),
        nn.Linear(768, 768),
        nn.ReLU(),
        nn.Linear(768, 1),
    ).to(device)
    model = model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    while True:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        yield
