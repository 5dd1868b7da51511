"""A pipeline of two stages and one micro-batch: each GPU waits while the other one computes."""

import os

import torch
import torch.distributed as dist
from torch import nn


def main(prof):
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    torch.set_float32_matmul_precision("high")
    stage = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(4096, 4096), nn.ReLU()))).to(device)
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3)
    for _ in range(8):
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
            dist.send(received.grad, 0)
        optimizer.step()
        prof.step()
    dist.destroy_process_group()
