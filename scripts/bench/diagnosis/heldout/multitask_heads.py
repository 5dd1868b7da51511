"""DDP with `find_unused_parameters=True`: 300 task heads, of which each step uses a few; the host searches the graph."""

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Tasks(nn.Module):
    def __init__(self, tasks: int = 300) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(256, 4) for _ in range(tasks))

    def forward(self, x: Tensor, task: int) -> Tensor:
        out: Tensor = self.heads[task](self.trunk(x))
        return out


def main(prof):
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    model = DistributedDataParallel(Tasks().to(device), device_ids=[device.index], find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(12):
        loss = model(torch.randn(128, 128, device=device), step % 300).square().mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        prof.step()
    dist.destroy_process_group()
