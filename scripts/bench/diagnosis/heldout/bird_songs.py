"""Bird songs: 10 micro-batches of one clip are accumulated on a GPU that is nearly empty."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "launch"
DEVICE = "cuda"
STEPS = 2

MICRO_BATCHES = 10


def train(device: str) -> Iterator[None]:
    model = nn.Sequential(
        nn.Conv1d(1, 64, 16, stride=8), nn.GELU(), nn.Conv1d(64, 128, 8, stride=4), nn.GELU(), nn.Conv1d(128, 256, 4, stride=2),
        nn.GELU(), nn.Conv1d(256, 256, 3), nn.GELU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(256, 200),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    clips, species = (
        torch.randn(MICRO_BATCHES, 1, 32_000, device=device),
        torch.randint(0, 200, (MICRO_BATCHES,), device=device),
    )
    while True:
        optimizer.zero_grad()
        for micro in range(MICRO_BATCHES):
            logits = model(clips[micro : micro + 1])
            loss = nn.functional.cross_entropy(logits, species[micro : micro + 1]) / MICRO_BATCHES
            loss.backward()
        optimizer.step()
        yield
