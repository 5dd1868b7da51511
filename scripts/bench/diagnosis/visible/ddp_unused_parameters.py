"""DDP visits the whole graph in each step, because find_unused_parameters is on."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CAUSE = "communication"
DEVICE = "cuda"
RANKS = 2
STEPS = 2
FORMS = ("plain",)
ALSO = ("launch", "python", "optimizer", "straggler", "sync")


def train(device: str) -> Iterator[None]:
    """Train a deep and narrow perceptron, all of whose parameters are used."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(80))).to(device)
    parallel = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(256, 64, device=device)
    while True:
        loss = parallel(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
