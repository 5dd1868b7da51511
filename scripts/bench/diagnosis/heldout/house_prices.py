"""Regression on a table: the loop prints the weights and the predictions of every step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "python"
DEVICE = "cpu"
STEPS = 1
ALSO = ("sync", "unknown")


def train(device: str) -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_printoptions(threshold=20_000)
    features = torch.randn(4096, 40)
    prices = features.pow(2).sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in itertools.count():
        rows = torch.randint(0, 4096, (128,))
        predictions = model(features[rows])
        loss = nn.functional.mse_loss(predictions, prices[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, "loss", loss, "predictions", predictions[:, 0])
        for name, parameter in model.named_parameters():
            print(name, parameter.flatten()[:40])
        yield
