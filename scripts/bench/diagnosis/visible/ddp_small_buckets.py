"""Buckets of a few kilobytes make one all-reduce of each small parameter."""

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
ALSO = ("launch", "python", "straggler")


def train(device: str) -> Iterator[None]:
    """Train a deep perceptron with tiny buckets."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.ReLU()) for _ in range(30))).to(device)
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(4096, 128, device=device)
    while True:
        loss = parallel(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
