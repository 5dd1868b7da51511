"""Depth from one image: the profiled steps contain the compilation of the model by `torch.compile`."""

import torch
from torch import Tensor, nn


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
def main(prof):
    model = DepthHead().cuda().eval()
    compiled = torch.compile(model)
    patches = torch.randn(64, 196, 64, device="cuda")
    model(patches)  # starts CUDA and cuBLAS
    for _ in range(5):
        compiled(patches)
        prof.step()
