"""A textile network normalizes channels last, and so permutes and copies its large pictures around every small step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "copies"
DEVICE = "cpu"


class Stage(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.ones(width, 1, 1))

    def forward(self, cloth: Tensor) -> Tensor:
        rows = cloth.permute(0, 2, 3, 1).contiguous()
        columns = self.norm(rows).permute(0, 3, 2, 1).contiguous()
        return torch.relu_(columns * self.scale).transpose(2, 3).contiguous()


def train(device: torch.device) -> Iterator[None]:
    model = nn.Sequential(*(Stage(32) for _ in range(4))).to(device).eval()
    cloth = torch.randn(8, 32, 160, 160, device=device)
    while True:
        with torch.inference_mode():
            model(cloth).amax((2, 3))
        yield
