"""One rank prepares its batch for longer, and the other waits for it in the all-reduce."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CAUSE = "straggler"
DEVICE = "cuda"
RANKS = 2
STEPS = 2
FORMS = ("plain",)
ALSO = ("python", "data", "communication", "unknown")


def train(device: str) -> Iterator[None]:
    """Train a perceptron of which rank 1 prepares its batch slowly."""
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(8192, 2048, device=device)
    while True:
        if dist.get_rank() == 1:
            time.sleep(0.04)  # a slow transform
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
