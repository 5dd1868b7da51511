"""The gradients of a large model are reduced after a short backward pass over a small batch."""

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
ALSO = ("optimizer", "straggler")


def train(device: str) -> Iterator[None]:
    """Train wide layers on few examples."""
    model = nn.Sequential(*(nn.Linear(8192, 8192) for _ in range(6))).to(device)
    parallel = DistributedDataParallel(model, bucket_cap_mb=4000)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(16, 8192, device=device)
    while True:
        loss = parallel(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
