"""Crop maps: predictions go to `.cpu().numpy()` in each step, and NumPy computes metrics while the GPU waits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

CAUSE = "cpu_fallback"
DEVICE = "cuda"
ALSO = ("python", "unknown")

CLASSES = 12


def confusion(predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.bincount(labels.ravel() * CLASSES + predictions.ravel(), minlength=CLASSES**2).reshape(CLASSES, CLASSES)


def train(device: str) -> Iterator[None]:
    model = nn.Sequential(
        nn.Conv2d(8, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, CLASSES, 1)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    matrix = np.zeros((CLASSES, CLASSES), dtype=np.int64)
    fields = torch.rand(16, 8, 256, 256, device=device)
    crops = torch.randint(0, CLASSES, (16, 256, 256), device=device)
    while True:
        scores = model(fields)
        loss = nn.functional.cross_entropy(scores, crops)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        predictions = scores.detach().softmax(1).cpu().numpy()
        matrix += confusion(predictions.argmax(axis=1), crops.cpu().numpy())
        yield
