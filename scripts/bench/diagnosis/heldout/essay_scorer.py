"""Essay scores: 4 micro-batches of one short essay are accumulated, although a batch of 4 fits easily."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "launch"
DEVICE = "cpu"
STEPS = 1

ACCUMULATION = 4


def train(device: str) -> Iterator[None]:
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2, enable_nested_tensor=False
    )
    score = nn.Linear(64, 1)
    parameters = [*encoder.parameters(), *score.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    while True:
        for _ in range(ACCUMULATION):
            essay, grade = torch.randn(1, 12, 64), torch.rand(1, 1)
            loss = nn.functional.mse_loss(score(encoder(essay).mean(1)), grade) / ACCUMULATION
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield
