"""Retina grades: `foreach=False` makes AdamW launch a dozen small kernels for each of 400 parameters."""

import torch
from torch import Tensor, nn


class Thin(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.layer(self.norm(x)).relu()
        return out


def main(prof):
    model = nn.Sequential(nn.Linear(768, 192), *(Thin(192) for _ in range(100)), nn.Linear(192, 5)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    features, grades = torch.randn(512, 768, device="cuda"), torch.randint(0, 5, (512,), device="cuda")
    for _ in range(8):
        loss = nn.functional.cross_entropy(model(features), grades)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()
