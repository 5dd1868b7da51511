"""Segments of road scenes: NumPy augments every image on the main process, because `num_workers` is 0."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CAUSE = "data"
DEVICE = "cuda"


class RoadScenes(Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        rng = np.random.default_rng(index)
        image = rng.integers(0, 256, (384, 512, 3), dtype=np.uint8).astype(np.float32) / 255
        image = np.clip(image ** rng.uniform(0.7, 1.4) + rng.normal(0, 0.02, image.shape), 0, 1)[:, ::-1]
        mask = (image.mean(axis=2) > 0.5).astype(np.int64)
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1), dtype=np.float32)), torch.from_numpy(
            mask
        )


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


def train(device: str) -> Iterator[None]:
    model = nn.Sequential(
        conv(3, 32, 2), conv(32, 64, 2), conv(64, 128), conv(128, 64), nn.Conv2d(64, 2, 1), nn.Upsample(scale_factor=4)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(RoadScenes(), batch_size=8, shuffle=True, pin_memory=True)
    for images, masks in loader:
        images, masks = images.to(device, non_blocking=True), masks.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), masks)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield
