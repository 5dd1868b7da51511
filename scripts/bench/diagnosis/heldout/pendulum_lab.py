"""A simulator's surrogate trains in float64, because its inputs come from NumPy and the model was converted to fit them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

CAUSE = "float64"
DEVICE = "cpu"


def train(device: torch.device) -> Iterator[None]:
    random = np.random.default_rng(0)
    angles = torch.from_numpy(random.normal(size=(1024, 256))).to(device)
    energy = torch.from_numpy(random.normal(size=(1024, 64))).to(device)
    model = nn.Sequential(nn.Linear(256, 1024), nn.SiLU(), nn.Linear(1024, 1024), nn.SiLU(), nn.Linear(1024, 64))
    model = model.to(device, angles.dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    while True:
        optimizer.zero_grad()
        loss = nn.functional.smooth_l1_loss(model(angles), energy)
        loss.backward()
        optimizer.step()
        yield
