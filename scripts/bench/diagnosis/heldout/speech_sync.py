"""DDP with gradient accumulation but without `no_sync()`: each micro-batch all-reduces 1.3 GB of gradients, exposed."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main(prof):
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    with device:
        model = nn.Sequential(*(layer for _ in range(5) for layer in (nn.Linear(8192, 8192), nn.ReLU())))
    model = DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(8):
        optimizer.zero_grad()
        for _ in range(4):
            frames = torch.randn(64, 8192, device=device)
            (model(frames).square().mean() / 4).backward()
        optimizer.step()
        prof.step()
    dist.destroy_process_group()
