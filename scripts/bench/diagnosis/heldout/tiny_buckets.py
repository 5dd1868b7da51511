"""DDP with `bucket_cap_mb=0.05`: hundreds of small all-reduces replace a few large ones."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main(prof):
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    layers = [layer for _ in range(150) for layer in (nn.Linear(160, 160), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers).to(device), device_ids=[device.index], bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    signals = torch.randn(256, 160, device=device)
    for _ in range(10):
        loss = model(signals).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()
    dist.destroy_process_group()
