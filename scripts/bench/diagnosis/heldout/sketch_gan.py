"""A GAN of sketches: the score of every single image is logged with `.item()`, hundreds of times per step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "sync"
DEVICE = "cuda"
STEPS = 2
ALSO = ("launch",)


def block(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


def discriminator() -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 64), (64, 128), (128, 256), (256, 512)):
        layers += [nn.Conv2d(inputs, outputs, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
    return nn.Sequential(*layers, nn.Conv2d(512, 1, 4), nn.Flatten())


def train(device: str) -> Iterator[None]:
    generator = nn.Sequential(
        nn.ConvTranspose2d(64, 512, 4),
        *block(512, 256),
        *block(256, 128),
        *block(128, 64),
        nn.ConvTranspose2d(64, 1, 4, 2, 1),
        nn.Tanh(),
    ).to(device)
    critic = discriminator().to(device)
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    d_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    bce = nn.BCEWithLogitsLoss()
    history: list[tuple[float, float, list[float]]] = []
    ones, zeros = torch.ones(256, 1, device=device), torch.zeros(256, 1, device=device)
    while True:
        sketches: Tensor = torch.rand(256, 1, 64, 64, device=device)
        drawings = generator(torch.randn(256, 64, 1, 1, device=device))
        real_score, fake_score = critic(sketches), critic(drawings.detach())
        d_loss = bce(real_score, ones) + bce(fake_score, zeros)
        d_optimizer.zero_grad()
        d_loss.backward()
        d_optimizer.step()
        g_loss = bce(critic(drawings), ones)
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()
        scores = [score.item() for score in fake_score]
        history.append((d_loss.item(), g_loss.item(), scores))
        yield
