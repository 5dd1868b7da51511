"""A scoring network answers large batches with wide products: there is nothing to repair."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "nothing"
DEVICE = "cpu"


def train(device: torch.device) -> Iterator[None]:
    model = nn.Sequential(
        nn.Linear(512, 1536),
        nn.ReLU(),
        nn.Linear(1536, 1536),
        nn.ReLU(),
        nn.Linear(1536, 1536),
        nn.ReLU(),
        nn.Linear(1536, 512),
    )
    model = model.to(device).eval()
    loans = torch.randn(2048, 512, device=device)
    while True:
        with torch.inference_mode():
            model(loans)
        yield
