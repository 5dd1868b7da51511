"""Batch scoring on a CPU: large matrix products in inference mode, well used."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "nothing"
DEVICE = "cpu"


@torch.inference_mode()
def train(device: str) -> Iterator[None]:
    model = nn.Sequential(
        nn.Linear(1024, 1280), nn.ReLU(inplace=True), nn.Linear(1280, 1280), nn.ReLU(inplace=True), nn.Linear(1280, 1280),
        nn.ReLU(inplace=True), nn.Linear(1280, 1024), nn.ReLU(inplace=True), nn.Linear(1024, 1),
    ).eval()  # fmt: skip
    transactions = torch.randn(2048, 1024)
    while True:
        torch.sigmoid(model(transactions))
        yield
