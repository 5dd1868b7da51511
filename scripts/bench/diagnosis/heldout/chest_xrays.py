"""Chest X-rays: two workers decompress and resize the images, and cannot keep up with the GPU."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CAUSE = "data"
DEVICE = "cuda"


class Xrays(Dataset[tuple[Tensor, int]]):
    def __init__(self) -> None:
        pixels = np.random.default_rng(0).normal(120, 20, (1024, 1024)).astype(np.uint16)
        self.stored = zlib.compress(pixels.tobytes(), 1)

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = np.frombuffer(zlib.decompress(self.stored), dtype=np.uint16).reshape(1024, 1024)
        image = torch.from_numpy(pixels.astype(np.float32))[None, None] / 255
        return nn.functional.interpolate(image, size=(224, 224), mode="bilinear", antialias=True)[0], index % 14


class XrayNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = [1, 32, 64, 128, 256]
        self.features = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in itertools.pairwise(widths))
        self.classifier = nn.Linear(256, 14)

    def forward(self, image: Tensor) -> Tensor:
        for layer in self.features:
            image = layer(image).relu()
        logits: Tensor = self.classifier(image.mean((2, 3)))
        return logits


def train(device: str) -> Iterator[None]:
    model = XrayNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loader = DataLoader(Xrays(), batch_size=24, num_workers=2, pin_memory=True, persistent_workers=True)
    for images, findings in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(
                model(images.to(device, non_blocking=True)), findings.to(device, non_blocking=True)
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
