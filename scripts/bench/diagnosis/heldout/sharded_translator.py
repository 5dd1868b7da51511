"""FSDP with small batches: gathering the parameters of each layer takes longer than computing with them."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def main(prof):
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    with device:
        model = nn.Sequential(*(nn.Sequential(nn.Linear(6144, 6144), nn.GELU()) for _ in range(8)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(8):
        loss = model(torch.randn(32, 6144, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()
    dist.destroy_process_group()
