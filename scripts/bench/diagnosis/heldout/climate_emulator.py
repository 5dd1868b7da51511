"""A climate emulator: large float32 matrix products run without TF32, which is PyTorch's default."""

import torch
from torch import nn


def main(prof):
    model = nn.Sequential(
        nn.Linear(2048, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 2048)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    state, tendency = torch.randn(8192, 2048, device="cuda"), torch.randn(8192, 2048, device="cuda")
    for _ in range(8):
        loss = nn.functional.mse_loss(model(state), tendency)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        prof.step()
