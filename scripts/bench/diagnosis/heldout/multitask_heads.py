"""DDP with `find_unused_parameters=True`: 120 task heads, of which each step uses a few; the host searches the graph."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

CAUSE = "communication"
DEVICE = "cuda"
STEPS = 2
RANKS = 2
ALSO = ("launch",)


class Tasks(nn.Module):
    def __init__(self, tasks: int = 120) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(256, 4) for _ in range(tasks))

    def forward(self, x: Tensor, task: int) -> Tensor:
        out: Tensor = self.heads[task](self.trunk(x))
        return out


def train(device: str) -> Iterator[None]:
    model = DistributedDataParallel(Tasks().to(device), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in itertools.count():
        loss = model(torch.randn(128, 128, device=device), step % 120).square().mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        yield
