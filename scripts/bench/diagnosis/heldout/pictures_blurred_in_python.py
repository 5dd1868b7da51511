"""A small image classifier waits for a loader without workers whose transform blurs every picture row by row in NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CAUSE = "data"
DEVICE = "any"
STEPS = 4


class Pictures(Dataset[tuple[Tensor, int]]):
    """Random pictures, augmented on access."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = np.random.default_rng(index)
        picture = generator.random((3, 64, 64), dtype=np.float32)
        kernel = np.hanning(7) / np.hanning(7).sum()
        blurred = np.stack([[np.convolve(row, kernel, mode="same") for row in channel] for channel in picture])
        return torch.from_numpy(blurred.astype(np.float32)), index % 10


def train(device: str) -> Iterator[None]:
    """Train a classifier with three convolutions."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 4, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in DataLoader(Pictures(), batch_size=32, shuffle=True):
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
