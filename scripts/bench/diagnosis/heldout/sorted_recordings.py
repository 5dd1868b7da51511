"""Recordings sorted by length, with little memory to spare: the allocator frees its cache and asks the driver again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "memory"
DEVICE = "cuda"
ALSO = ("changing_shapes", "pointwise")

GIB = 1024**3
LENGTHS = itertools.count(1500, 160)


class Filters(nn.Module):
    def __init__(self, bands: int = 256, depth: int = 28) -> None:
        super().__init__()
        self.gain = nn.ParameterList(torch.ones(bands) for _ in range(depth))
        self.offset = nn.ParameterList(torch.zeros(bands) for _ in range(depth))

    def forward(self, recording: Tensor) -> list[Tensor]:
        layers = [recording]
        for gain, offset in zip(self.gain, self.offset, strict=True):
            layers.append(torch.relu_(torch.addcmul(offset, layers[-1], gain)))
        return layers


@torch.inference_mode()
def train(device: str) -> Iterator[None]:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(2.2 * GIB / total)  # another job shares this GPU
    model = Filters().to(device).eval()
    probes = []
    for length in LENGTHS:
        recordings = torch.randn(16, length, 256, device=device)
        probes.append(torch.stack([layer.mean() for layer in model(recordings)]))
        yield
