"""A sine synthesized by NumPy makes the input of an audio network float64, and the network was made double to match."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

CAUSE = "float64"
DEVICE = "cuda"
ALSO = ("cudnn",)


def train(device: str) -> Iterator[None]:
    """Learn to tell the pitch of a wave."""
    rng = np.random.default_rng(0)
    pitch = rng.uniform(100.0, 1000.0, size=(32, 1))
    wave = torch.from_numpy(np.sin(2 * np.pi * pitch * np.linspace(0.0, 0.5, 4000)))
    x, y = wave.unsqueeze(1).to(device), torch.from_numpy(np.log(pitch)).to(device)
    model = nn.Sequential(
        nn.Conv1d(1, 64, 9, stride=4),
        nn.ReLU(),
        nn.Conv1d(64, 128, 9, stride=2),
        nn.ReLU(),
        nn.Conv1d(128, 128, 9),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(128, 1),
    ).to(device, x.dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        yield
