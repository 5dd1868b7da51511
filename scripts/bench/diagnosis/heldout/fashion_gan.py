"""A GAN of fashion images: anomaly detection of autograd was left on, which checks every gradient for NaN."""

import torch
from torch import nn


def main(prof):
    generator = nn.Sequential(nn.Linear(64, 256), nn.ELU(), nn.Linear(256, 512), nn.ELU(), nn.Linear(512, 784), nn.Tanh()).cuda()
    critic = nn.Sequential(nn.Linear(784, 512), nn.ELU(), nn.Linear(512, 256), nn.ELU(), nn.Linear(256, 1)).cuda()
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-4, fused=True)
    d_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4, fused=True)
    images = torch.rand(128, 784, device="cuda")
    with torch.autograd.detect_anomaly():
        for _ in range(12):
            fakes = generator(torch.randn(128, 64, device="cuda"))
            d_optimizer.zero_grad()
            (critic(fakes.detach()).mean() - critic(images).mean()).backward()
            d_optimizer.step()
            g_optimizer.zero_grad()
            (-critic(fakes).mean()).backward()
            g_optimizer.step()
            prof.step()
