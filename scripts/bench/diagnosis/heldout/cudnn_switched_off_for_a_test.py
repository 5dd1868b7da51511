"""A GAN on pictures runs with cuDNN switched off, a setting left over from a search for differences between runs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "cudnn"
DEVICE = "cuda"


def generator(noise: int, width: int) -> nn.Module:
    """Transposed convolutions from noise to pictures of 64 by 64."""
    return nn.Sequential(
        nn.ConvTranspose2d(noise, 4 * width, 8),
        nn.BatchNorm2d(4 * width),
        nn.ReLU(),
        nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.ConvTranspose2d(width, 3, 4, 2, 1),
        nn.Tanh(),
    )


def critic(width: int) -> nn.Module:
    """Strided convolutions from pictures to one number."""
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(2 * width, 4 * width, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(4 * width, 1, 8),
        nn.Flatten(),
    )


def train(device: str) -> Iterator[None]:
    """Train both players once per step."""
    torch.backends.cudnn.enabled = False
    g, d = generator(64, 64).to(device), critic(64).to(device)
    g_optimizer = torch.optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(d.parameters(), lr=2e-4, betas=(0.5, 0.999))
    real = torch.rand(128, 3, 64, 64, device=device) * 2 - 1
    while True:
        fake = g(torch.randn(128, 64, 1, 1, device=device))
        d_optimizer.zero_grad()
        (nn.functional.softplus(-d(real)).mean() + nn.functional.softplus(d(fake.detach())).mean()).backward()
        d_optimizer.step()
        g_optimizer.zero_grad()
        nn.functional.softplus(-d(fake)).mean().backward()
        g_optimizer.step()
        yield
