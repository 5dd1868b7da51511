"""Two stages of a pipeline work in turn, because a batch is not split."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

CAUSE = "communication"
DEVICE = "cuda"
RANKS = 2
STEPS = 2
FORMS = ("plain",)
ALSO = ("straggler", "precision")


def train(device: str) -> Iterator[None]:
    """Train two stages that send activations and gradients to each other."""
    rank = dist.get_rank()
    stage = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(4)))
    stage = stage.to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3)
    x = torch.randn(8192, 4096, device=device, dtype=torch.bfloat16)
    while True:
        if rank == 0:
            h = stage(x)
            dist.send(h.detach(), 1)
            gradient = torch.empty_like(h)
            dist.recv(gradient, 1)
            h.backward(gradient)
        else:
            received = torch.empty_like(x)
            dist.recv(received, 0)
            received.requires_grad_()
            stage(received).float().square().mean().backward()
            assert received.grad is not None
            dist.send(received.grad, 0)
        optimizer.step()
        optimizer.zero_grad()
        yield
