"""A layer computes a decomposition on the host, because a driver once had a bug on the device."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "cpu_fallback"
DEVICE = "cuda"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("Whitening", "-i", "4096,384", "--mode", "infer")
ALSO = ("sync", "python", "layer")


class Whitening(nn.Module):
    """Removes the correlations between features."""

    def __init__(self, width: int = 384) -> None:
        super().__init__()
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Project and whiten."""
        x = self.project(x)
        values, vectors = torch.linalg.eigh((x.T @ x / len(x)).cpu())
        scale = vectors * (values + 1e-3).rsqrt()
        whitened: Tensor = x @ scale.to(x.device)
        return whitened


def train(device: str) -> Iterator[None]:
    """Whiten features for a search index."""
    model = Whitening().to(device)
    x = torch.randn(4096, 384, device=device)
    with torch.inference_mode():
        while True:
            model(x)
            yield
