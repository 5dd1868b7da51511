"""The loader of the second rank is slow, so that the first rank waits in every all-reduce."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

CAUSE = "straggler"
DEVICE = "cuda"
RANKS = 2
ALSO = ("data", "communication")


def batches(device: str) -> Iterator[Tensor]:
    """Random rows, which the second rank reads from a slow disk."""
    while True:
        if dist.get_rank() == 1:
            time.sleep(0.06)
        yield torch.randn(4096, 2048, device=device, dtype=torch.bfloat16)


def train(device: str) -> Iterator[None]:
    """Train a perceptron on two devices."""
    model = nn.Sequential(nn.Linear(2048, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 2048))
    ddp = DistributedDataParallel(model.to(device, torch.bfloat16))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    for x in batches(device):
        optimizer.zero_grad()
        nn.functional.mse_loss(ddp(x), x).backward()
        optimizer.step()
        yield
