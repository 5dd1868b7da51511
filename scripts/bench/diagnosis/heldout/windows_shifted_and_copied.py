"""Windows are cut from a feature map with roll, permute and contiguous, and put back likewise, around one small layer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "copies"
DEVICE = "cuda"
ALSO = ("pointwise",)


class Window(nn.Module):
    """Mix the channels in shifted windows of 8 by 8."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output for one batch."""
        b, c, h, w = x.shape
        shifted = torch.roll(x, (-4, -4), dims=(2, 3))
        windows = shifted.view(b, c, h // 8, 8, w // 8, 8).permute(0, 2, 4, 3, 5, 1).contiguous()
        mixed = self.mix(windows.view(-1, 64, c)).view(b, h // 8, w // 8, 8, 8, c)
        back = mixed.permute(0, 5, 1, 3, 2, 4).contiguous().view(b, c, h, w)
        return torch.roll(back, (4, 4), dims=(2, 3))


def train(device: str) -> Iterator[None]:
    """Train six layers in bfloat16."""
    model = nn.Sequential(*(Window(96) for _ in range(6))).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(16, 96, 128, 128, device=device, dtype=torch.bfloat16)
    while True:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
        yield
