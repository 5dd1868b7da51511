"""Two GPUs train on fleet data: rank 1 parses its records more slowly, and rank 0 waits in every all-reduce."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CAUSE = "straggler"
DEVICE = "cuda"
RANKS = 2
ALSO = ("communication", "data", "python", "unknown")


def parse(rank: int) -> torch.Tensor:
    lines = 12_000 if rank == 1 else 600  # its shard has the long files
    total = sum(float(f"{number}.5") % 7 for number in range(lines * 4))
    return torch.randn(256, 512) + total % 1


def train(device: str) -> Iterator[None]:
    rank = dist.get_rank()
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 16)).to(
        device
    )
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        vehicles, faults = parse(rank).to(device), torch.randint(0, 16, (256,), device=device)
        loss = nn.functional.cross_entropy(parallel(vehicles), faults)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
