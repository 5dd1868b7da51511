"""Denoising of photos: bfloat16 autocast on a processor without bfloat16 units slows every convolution down."""

import torch
from torch import Tensor, nn


class Denoiser(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.middle = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(4))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, photo: Tensor) -> Tensor:
        x = torch.relu(self.first(photo))
        for conv, norm in zip(self.middle, self.norms, strict=True):
            x = torch.relu(norm(conv(x)))
        noise: Tensor = self.last(x)
        return photo - noise


def main(prof):
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(6):
        clean = torch.rand(4, 3, 64, 64)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.l1_loss(model(clean + 0.1 * torch.randn_like(clean)), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()
