"""Depth from one image: the profiled steps contain the compilation of the model by `torch.compile`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "compile"
DEVICE = "cuda"
WARMUP = 0
ALSO = ("cold_start",)


class DepthHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.norm = nn.LayerNorm(64)
        self.depth = nn.Linear(64, 1)

    def forward(self, patches: Tensor) -> Tensor:
        for layer in self.layers:
            patches = patches + nn.functional.silu(layer(self.norm(patches)))
        return nn.functional.softplus(self.depth(patches))


@torch.no_grad()
def train(device: str) -> Iterator[None]:
    model = DepthHead().to(device).eval()
    compiled = torch.compile(model)
    patches = torch.randn(64, 196, 64, device=device)
    model(patches)  # starts CUDA and cuBLAS
    while True:
        compiled(patches)
        yield
