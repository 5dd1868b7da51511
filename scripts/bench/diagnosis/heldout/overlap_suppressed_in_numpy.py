"""After each forward pass the boxes move to the CPU, where NumPy suppresses overlaps while the device waits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

CAUSE = "cpu_fallback"
DEVICE = "cuda"
ALSO = ("python", "sync")


def suppress(boxes: np.ndarray, scores: np.ndarray, limit: float = 0.5) -> list[int]:
    """The indices of the boxes that overlap no better box."""
    order, kept = scores.argsort()[::-1], []
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    while len(order):
        best, rest = order[0], order[1:]
        kept.append(int(best))
        low, high = np.maximum(boxes[best, :2], boxes[rest, :2]), np.minimum(boxes[best, 2:], boxes[rest, 2:])
        shared = np.clip(high - low, 0, None).prod(axis=1)
        order = rest[shared / (area[best] + area[rest] - shared) < limit]
    return kept


def train(device: str) -> Iterator[None]:
    """Evaluate a detector on eight pictures per step."""
    net = nn.Sequential(nn.Conv2d(3, 64, 7, 8), nn.ReLU(), nn.Conv2d(64, 128, 3, 2), nn.ReLU(), nn.Conv2d(128, 5, 1))
    net = net.to(device).eval()
    pictures = torch.rand(8, 3, 640, 640, device=device)
    found = 0
    while True:
        with torch.inference_mode():
            out = net(pictures).flatten(2).transpose(1, 2)
            corner = torch.rand_like(out[..., :2]) * 600
            boxes = torch.cat([corner, corner + 20 + 40 * out[..., 1:3].sigmoid()], dim=-1)
        for box, score in zip(boxes, out[..., 0], strict=True):
            found += len(suppress(box.cpu().numpy(), score.cpu().numpy()))
        yield
