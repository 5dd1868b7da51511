"""MRI volumes: 3-D convolutions in bfloat16 and channels_last_3d, fed by workers and pinned memory; nothing is wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CAUSE = "nothing"
DEVICE = "cuda"


class Volumes(Dataset[tuple[Tensor, int]]):
    def __init__(self) -> None:
        self.volume = torch.rand(4, 64, 64, 64).half()

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.volume, index % 3


def train(device: str) -> Iterator[None]:
    torch.backends.cudnn.benchmark = True
    widths = [4, 128, 256, 256]
    layers = [
        layer for a, b in itertools.pairwise(widths) for layer in (nn.Conv3d(a, b, 3, padding=1), nn.ReLU(inplace=True))
    ]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(256, 3))
    model = model.to(device, torch.bfloat16).to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    loader = DataLoader(Volumes(), batch_size=8, num_workers=4, pin_memory=True, prefetch_factor=4)
    for volumes, labels in loader:
        volumes = volumes.to(device, torch.bfloat16, non_blocking=True).contiguous(memory_format=torch.channels_last_3d)
        loss = nn.functional.cross_entropy(model(volumes).float(), labels.to(device, non_blocking=True))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield
