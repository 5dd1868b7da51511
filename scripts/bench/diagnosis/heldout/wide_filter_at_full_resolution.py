"""One 11x11 convolution at full resolution takes nearly all of the time of a denoiser whose other layers are small."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "layer"
DEVICE = "cpu"


class Denoiser(nn.Module):
    """Small layers around one wide filter."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 24, 3, padding=1)
        self.wide = nn.Conv2d(24, 24, 11, padding=5)
        self.down = nn.Conv2d(24, 24, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(24, 24, 3, padding=1)
        self.up = nn.ConvTranspose2d(24, 8, 2, stride=2)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output for one batch."""
        h = self.wide(self.stem(x).relu()).relu()
        h = self.mid(self.down(h).relu()).relu()
        return x - self.out(self.up(h).relu())


def train(device: str) -> Iterator[None]:
    """Remove noise from random pictures."""
    model = Denoiser().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    clean = torch.rand(2, 1, 80, 80, device=device)
    while True:
        noisy = clean + 0.1 * torch.randn_like(clean)
        optimizer.zero_grad()
        nn.functional.l1_loss(model(noisy), clean).backward()
        optimizer.step()
        yield
