"""Two GPUs train on fleet data: rank 1 parses its records more slowly, and rank 0 waits in every all-reduce."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def parse(rank: int) -> torch.Tensor:
    lines = 12_000 if rank == 1 else 600  # its shard has the long files
    total = sum(float(f"{number}.5") % 7 for number in range(lines * 4))
    return torch.randn(256, 512) + total % 1


def main(prof):
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 16)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        vehicles, faults = parse(rank).to(device), torch.randint(0, 16, (256,), device=device)
        loss = nn.functional.cross_entropy(model(vehicles), faults)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()
    dist.destroy_process_group()
