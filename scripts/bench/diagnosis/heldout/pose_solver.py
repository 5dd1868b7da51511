"""Camera poses: part of the model runs on the CPU, because the author moved a decomposition there."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "cpu_fallback"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("PoseNet", "-i", "2048,96", "--mode", "infer")
DEVICE = "cuda"
ALSO = ("sync", "host_copies")


class PoseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(96, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64))
        self.refine = nn.Linear(16, 16)

    def forward(self, keypoints: Tensor) -> Tensor:
        matrices = self.features(keypoints).view(-1, 8, 8)
        u, s, v = torch.linalg.svd(matrices.cpu())
        poses = (u[:, :4, :4] * s[:, None, :4]) @ v[:, :4, :4]
        out: Tensor = self.refine(poses.flatten(1).to(keypoints.device))
        return out


@torch.inference_mode()
def train(device: str) -> Iterator[None]:
    model = PoseNet().to(device).eval()
    while True:
        keypoints = torch.randn(2048, 96, device=device)
        model(keypoints).norm(dim=1)
        yield
