"""Two workers cannot decode images as fast as the model trains."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CAUSE = "data"
DEVICE = "cuda"


class Photos(Dataset[tuple[Tensor, int]]):
    """Images that are decoded and augmented in Python."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = torch.rand(3, 224, 224)
        for _ in range(12):
            image = torch.nn.functional.avg_pool2d(image.flip(2), 3, 1, 1)
        return image[:, :32, :32], index % 10


def convnet(width: int) -> nn.Module:
    """Return a small convolutional classifier of 32x32 images."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(2 * width, 10),
    )  # fmt: skip


def train(device: str) -> Iterator[None]:
    """Train on batches of the loader."""
    model = convnet(16).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Photos(), batch_size=32, num_workers=2)
    while True:
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield
