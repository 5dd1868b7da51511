"""A diffusion model mixes noise, rescales and activates large maps with a chain of separate elementwise operators."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "pointwise"
DEVICE = "cuda"


def activate(x: Tensor) -> Tensor:
    """Mish, from single operators, with a clamp against overflow."""
    soft = torch.log(1 + torch.exp(x.clamp(max=20.0)))
    e = torch.exp(-2 * soft)
    return x * ((1 - e) / (1 + e))


def train(device: str) -> Iterator[None]:
    """Train a small network to remove the noise."""
    first = nn.Conv2d(4, 32, 3, padding=1).to(device)
    middle = nn.Conv2d(32, 32, 1).to(device)
    last = nn.Conv2d(32, 4, 1).to(device)
    optimizer = torch.optim.AdamW([*first.parameters(), *middle.parameters(), *last.parameters()], lr=1e-4)
    clean = torch.randn(16, 4, 256, 256, device=device)
    while True:
        t = torch.rand(16, 1, 1, 1, device=device)
        noise = torch.randn_like(clean)
        noisy = torch.cos(t) * clean + torch.sin(t) * noise
        h = activate(first(noisy)) * (1 + t) - 0.5 * t
        h = activate(middle(h)) * (1 + t) - 0.5 * t
        optimizer.zero_grad()
        (last(h) - noise).square().mean().backward()
        optimizer.step()
        yield
