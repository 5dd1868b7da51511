"""Two hospitals train one model with DDP on CPUs; rank 1 prepares its records more slowly every step."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CAUSE = "straggler"
DEVICE = "cpu"
RANKS = 2
ALSO = ("communication", "python", "unknown")


def load_records(rank: int) -> torch.Tensor:
    if rank == 1:
        time.sleep(0.08)  # its file server is slow
    return torch.randn(64, 128)


def train(device: str) -> Iterator[None]:
    rank = dist.get_rank()
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        records, outcomes = load_records(rank), torch.randint(0, 2, (64,))
        loss = nn.functional.cross_entropy(model(records), outcomes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
