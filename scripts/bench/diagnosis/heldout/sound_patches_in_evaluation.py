"""Nothing is wrong: large batches of patches pass through a wide vision encoder in float16 without gradients."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "nothing"
DEVICE = "cuda"


def train(device: str) -> Iterator[None]:
    """Evaluate an encoder of four layers, with the number of hits kept on the device."""
    encoder = nn.ModuleList(nn.Linear(2048, 6144) for _ in range(4)).to(device, torch.float16).eval()
    projections = nn.ModuleList(nn.Linear(6144, 2048) for _ in range(4)).to(device, torch.float16).eval()
    head = nn.Linear(2048, 1024).to(device, torch.float16).eval()
    x = torch.randn(64 * 512, 2048, device=device, dtype=torch.float16)
    y = torch.randint(0, 1024, (64,), device=device)
    hits = torch.zeros((), device=device, dtype=torch.long)
    while True:
        with torch.inference_mode():
            h = x
            for up, down in zip(encoder, projections, strict=True):
                h = down(up(h).relu_())
            hits += (head(h.view(64, 512, 2048).mean(dim=1)).argmax(dim=1) == y).sum()
        yield
