"""Offline embeddings of documents in bfloat16: large matrix products back to back; nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "nothing"
DEVICE = "cuda"


@torch.inference_mode()
def train(device: str) -> Iterator[None]:
    model = nn.Sequential(
        nn.Linear(4096, 16_384, bias=False), nn.ReLU(inplace=True), nn.Linear(16_384, 4096, bias=False), nn.ReLU(inplace=True),
        nn.Linear(4096, 16_384, bias=False), nn.ReLU(inplace=True), nn.Linear(16_384, 4096, bias=False),
    ).to(device, torch.bfloat16).eval()  # fmt: skip
    documents = torch.randn(16_384, 4096, device=device, dtype=torch.bfloat16)
    while True:
        model(documents)
        yield
