"""Two hospitals train one model with DDP on CPUs; rank 1 prepares its records more slowly every step."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def load_records(rank: int) -> torch.Tensor:
    if rank == 1:
        time.sleep(0.08)  # its file server is slow
    return torch.randn(64, 128)


def main(prof):
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(8):
        records, outcomes = load_records(rank), torch.randint(0, 2, (64,))
        loss = nn.functional.cross_entropy(model(records), outcomes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()
    dist.destroy_process_group()
