"""A server answers 16 rows per step under autocast, which converts huge float32 weights to float16 each time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "autocast"
DEVICE = "cuda"
ALSO = ("copies",)


def train(device: str) -> Iterator[None]:
    """Answer small requests with a large model."""
    model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(8192, 8192, bias=False), nn.ReLU())))
    model = model.to(device).eval().requires_grad_(False)
    request = torch.randn(16, 8192, device=device)
    while True:
        with torch.inference_mode(), torch.autocast(device.split(":")[0], dtype=torch.float16):
            answer = model(request)
        request = nn.functional.layer_norm(answer.float(), (8192,))
        yield
