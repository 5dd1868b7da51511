"""A beam search sorts hypotheses in Python between two small forward passes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "python"
ALSO = ("launch", "sync", "data")


def train(device: str) -> Iterator[None]:
    """Search for the best sequence of words."""
    model = nn.Sequential(nn.Embedding(2000, 64), nn.Flatten(), nn.Linear(64 * 8, 2000)).to(device)
    beams = [(0.0, list(range(8)))] * 8
    with torch.inference_mode():
        while True:
            scores = model(torch.tensor([words[-8:] for _, words in beams], device=device)).log_softmax(-1).tolist()
            options = []
            for (total, words), row in zip(beams, scores, strict=True):
                for word, value in enumerate(row):
                    options.append((total + value, [*words, word]))
            beams = sorted(options, key=lambda option: -option[0])[:8]
            yield
