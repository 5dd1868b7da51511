"""A pipeline of two stages and one micro-batch: each GPU waits while the other one computes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

CAUSE = "communication"
DEVICE = "cuda"
RANKS = 2
ALSO = ("sync",)


def train(device: str) -> Iterator[None]:
    rank = dist.get_rank()
    torch.set_float32_matmul_precision("high")
    stage = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(4096, 4096), nn.ReLU()))).to(device)
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3)
    while True:
        optimizer.zero_grad()
        if rank == 0:
            activations = stage(torch.randn(8192, 4096, device=device))
            dist.send(activations.detach(), 1)
            gradient = torch.empty_like(activations)
            dist.recv(gradient, 1)
            activations.backward(gradient)
        else:
            received = torch.empty(8192, 4096, device=device)
            dist.recv(received, 0)
            received.requires_grad_()
            stage(received).square().mean().backward()
            assert received.grad is not None
            dist.send(received.grad, 0)
        optimizer.step()
        yield
