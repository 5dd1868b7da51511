"""A GAN of fashion images: anomaly detection of autograd was left on, which checks every gradient for NaN."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "anomaly"
DEVICE = "cuda"
STEPS = 2
ALSO = ("launch", "sync")


def train(device: str) -> Iterator[None]:
    generator = nn.Sequential(
        nn.Linear(64, 256), nn.ELU(), nn.Linear(256, 512), nn.ELU(), nn.Linear(512, 784), nn.Tanh()
    ).to(device)
    critic = nn.Sequential(nn.Linear(784, 512), nn.ELU(), nn.Linear(512, 256), nn.ELU(), nn.Linear(256, 1)).to(device)
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-4, fused=True)
    d_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4, fused=True)
    images = torch.rand(128, 784, device=device)
    with torch.autograd.detect_anomaly():
        while True:
            fakes = generator(torch.randn(128, 64, device=device))
            d_optimizer.zero_grad()
            (critic(fakes.detach()).mean() - critic(images).mean()).backward()
            d_optimizer.step()
            g_optimizer.zero_grad()
            (-critic(fakes).mean()).backward()
            g_optimizer.step()
            yield
