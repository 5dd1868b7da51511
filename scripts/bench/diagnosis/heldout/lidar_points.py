"""Lidar points: each stage selects points with a boolean mask in `forward`, so the host waits for their number."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "sync"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("PointNet", "-i", "90000,4", "--mode", "infer")
DEVICE = "cuda"
ALSO = ("launch", "precision", "pointwise")


class Stage(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.Linear(width, width)
        self.score = nn.Linear(width, 1)

    def forward(self, points: Tensor) -> Tensor:
        points = points + torch.relu(self.features(points))
        score = self.score(points)[:, 0]
        return points[score > score.mean() - 2 * score.std()]


class PointNet(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.lift = nn.Linear(4, width)
        self.stages = nn.ModuleList(Stage(width) for _ in range(12))
        self.objects = nn.Linear(width, 8)

    def forward(self, cloud: Tensor) -> Tensor:
        points = self.lift(cloud)
        for stage in self.stages:
            points = stage(points)
        logits: Tensor = self.objects(points.amax(0))
        return logits


@torch.inference_mode()
def train(device: str) -> Iterator[None]:
    model = PointNet().to(device).eval()
    cloud = torch.randn(90_000, 4, device=device)
    while True:
        model(cloud)
        yield
