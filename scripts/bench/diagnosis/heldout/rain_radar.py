"""Rain radar: one 15 x 15 convolution at full resolution dominates an otherwise small encoder and decoder."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "layer"
FORMS = ("stacks", "analyze")
ANALYZE = ("RadarNet", "-i", "8,6,256,256")
DEVICE = "cuda"
ALSO = ("precision",)


class RadarNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Conv2d(6, 32, 3, padding=1)
        self.motion = nn.Conv2d(32, 64, 15, padding=7)
        self.down = nn.Conv2d(64, 64, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(64, 64, 3, padding=1)
        self.up = nn.ConvTranspose2d(64, 32, 2, stride=2)
        self.rain = nn.Conv2d(32, 1, 1)

    def forward(self, frames: Tensor) -> Tensor:
        x = torch.relu(self.motion(torch.relu(self.encode(frames))))
        x = torch.relu(self.middle(torch.relu(self.down(x))))
        rain: Tensor = self.rain(torch.relu(self.up(x)))
        return rain


def train(device: str) -> Iterator[None]:
    model = RadarNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    frames, rain = torch.rand(8, 6, 256, 256, device=device), torch.rand(8, 1, 256, 256, device=device)
    while True:
        loss = nn.functional.l1_loss(model(frames), rain)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
