"""Sea ice: every layer cuts the map into windows and puts it back, each time with `.contiguous()` copies."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "copies"
DEVICE = "cuda"
ALSO = ("pointwise",)


class Window(nn.Module):
    def __init__(self, width: int, size: int = 8) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        batch, width, height, columns = x.shape
        size = self.size
        windows = x.permute(0, 2, 3, 1).contiguous().view(batch, height // size, size, columns // size, size, width)
        windows = windows.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size * size, width)
        windows = self.mix(windows)
        windows = (
            windows.view(batch, height // size, columns // size, size, size, width)
            .permute(0, 1, 3, 2, 4, 5)
            .contiguous()
        )
        out: Tensor = x + windows.view(batch, height, columns, width).permute(0, 3, 1, 2).contiguous()
        return out


@torch.inference_mode()
def train(device: str) -> Iterator[None]:
    model = nn.Sequential(nn.Conv2d(4, 64, 1), *(Window(64) for _ in range(8)), nn.Conv2d(64, 3, 1)).to(device).eval()
    maps = torch.rand(16, 4, 256, 256, device=device)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        while True:
            model(maps).argmax(1)
            yield
