"""Gestures in video: each layer moves channels back and forth with `permute(...).contiguous()`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "copies"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("Gestures", "-i", "4,3,8,64,64", "--mode", "infer")
DEVICE = "cpu"
ALSO = ("pointwise",)


class Mixer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.space = nn.Linear(width, width)
        self.time = nn.Conv1d(8, 8, 1)

    def forward(self, clip: Tensor) -> Tensor:
        batch, width, frames, height, columns = clip.shape
        x = clip.permute(0, 2, 3, 4, 1).contiguous()
        x = self.space(x)
        x = x.permute(0, 2, 3, 4, 1).contiguous().view(-1, width, frames)
        x = self.time(x.transpose(1, 2).contiguous())
        x = x.view(batch, height, columns, frames, width)
        out: Tensor = x.permute(0, 4, 3, 1, 2).contiguous()
        return out


class Gestures(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv3d(3, width, 1)
        self.mixers = nn.ModuleList(Mixer(width) for _ in range(5))
        self.head = nn.Linear(width, 10)

    def forward(self, clip: Tensor) -> Tensor:
        x = self.stem(clip)
        for mixer in self.mixers:
            x = mixer(x)
        logits: Tensor = self.head(x.mean((2, 3, 4)))
        return logits


@torch.no_grad()
def train(device: str) -> Iterator[None]:
    model = Gestures().eval()
    while True:
        clip = torch.rand(4, 3, 8, 64, 64)
        model(clip).argmax(1)
        yield
