"""A single loader worker computes spectrograms and stretches them in Python, and cannot keep up with the network."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CAUSE = "data"
DEVICE = "cuda"


class Clips(Dataset[tuple[Tensor, int]]):
    """Spectrograms of random clips, stretched at random."""

    def __len__(self) -> int:
        return 50_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        rng = np.random.default_rng(index)
        wave = rng.standard_normal(16_000)
        frames = np.stack([wave[start : start + 512] * np.hanning(512) for start in range(0, 15_488, 128)])
        power = np.log1p(np.abs(np.fft.rfft(frames)[:, :128]))
        grid = np.linspace(0, len(power) - 1, 128) ** rng.uniform(0.98, 1.0)
        stretched = np.stack([np.interp(grid, np.arange(len(power)), band) for band in power.T])
        return torch.from_numpy(stretched.astype(np.float32)), index % 35


def train(device: str) -> Iterator[None]:
    """Train a classifier of short commands."""
    model = nn.Sequential(
        nn.Conv1d(128, 256, 5),
        nn.ReLU(),
        nn.Conv1d(256, 256, 5, stride=2),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(256, 35),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in DataLoader(Clips(), batch_size=24, shuffle=True, num_workers=1, pin_memory=device.startswith("cuda")):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))
        loss.backward()
        optimizer.step()
        yield
