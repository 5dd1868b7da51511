"""Galaxy classes: large float32 batches are copied to the GPU from pageable memory, step after step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "host_copies"
DEVICE = "cuda"
ALSO = ("sync",)


def train(device: str) -> Iterator[None]:
    survey = torch.rand(768, 3, 256, 256)
    classes = torch.randint(0, 10, (768,))
    model = nn.Sequential(
        nn.Conv2d(3, 32, 8, stride=8),
        nn.GELU(),
        nn.Conv2d(32, 128, 3, stride=2),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(6):
        for images, labels in zip(survey.split(256), classes.split(256), strict=True):
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield
