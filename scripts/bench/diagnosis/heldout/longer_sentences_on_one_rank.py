"""The data are sorted by length before they are split, so that one rank always gets sentences four times as long."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

CAUSE = "straggler"
DEVICE = "cuda"
RANKS = 2
ALSO = ("communication",)


class Reader(nn.Module):
    """A perceptron over every position and the mean of a sentence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(6))
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output for one batch."""
        for layer in self.layers:
            x = nn.functional.gelu(layer(x))
        return self.head(x.mean(dim=1))


def train(device: str) -> Iterator[None]:
    """Classify sentences of 256 positions on one rank and of 1024 on the other."""
    ddp = DistributedDataParallel(Reader(2048).to(device, torch.bfloat16))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    length = 1024 if dist.get_rank() == 0 else 256
    x = torch.randn(64, length, 2048, device=device, dtype=torch.bfloat16)
    y = torch.randint(0, 2, (64,), device=device)
    while True:
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(x).float(), y).backward()
        optimizer.step()
        yield
