"""A compiled encoder is specialized to fixed shapes, and every batch has another length, so that each step compiles again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import torch
from torch import nn

CAUSE = "changing_shapes"
DEVICE = "cuda"
# Lengths never repeat, not even where the process runs the program twice.
LENGTHS = count(64, 8)


def train(device: str) -> Iterator[None]:
    """Score batches of sentences that get longer from step to step."""
    embed = nn.Embedding(1000, 256)
    model = nn.Sequential(embed, nn.LayerNorm(256), nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 1)).to(device).eval()
    score = torch.compile(model, dynamic=False)
    for length in LENGTHS:
        tokens = torch.randint(0, 1000, (128, length), device=device)
        with torch.no_grad():
            score(tokens).mean(dim=1)
        yield
