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
LENGTHS = itertools.count(3000, 80)


class Filters(nn.Module):
    def __init__(self, bands: int = 256, depth: int = 5) -> None:
        super().__init__()
        self.gain = nn.ParameterList(torch.ones(bands) for _ in range(depth))
        self.offset = nn.ParameterList(torch.zeros(bands) for _ in range(depth))
        self.speaker = nn.Linear(bands, 40)

    def forward(self, recording: Tensor) -> Tensor:
        x = recording
        for gain, offset in zip(self.gain, self.offset, strict=True):
            x = torch.relu(x * gain + offset)
        logits: Tensor = self.speaker(x.mean(1))
        return logits


def train(device: str) -> Iterator[None]:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(3.5 * GIB / total)  # another job shares this GPU
    model = Filters().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    speakers = torch.randint(0, 40, (64,), device=device)
    for length in LENGTHS:
        recordings = torch.randn(64, length, 256, device=device)
        loss = nn.functional.cross_entropy(model(recordings), speakers)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield
