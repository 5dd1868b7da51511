"""A variational autoencoder of digits: `set_detect_anomaly(True)` was left on after a search for NaNs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "anomaly"
DEVICE = "cpu"
STEPS = 2
ALSO = ("python",)


class DigitsVae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 64), nn.ELU(), nn.Linear(64, 32))
        self.decoder = nn.Sequential(nn.Linear(16, 64), nn.ELU(), nn.Linear(64, 784))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(latent), mean, log_variance


def train(device: str) -> Iterator[None]:
    torch.autograd.set_detect_anomaly(True)
    model = DigitsVae()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        x = torch.rand(32, 784)
        logits, mean, log_variance = model(x)
        reconstruction = nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum()
        loss = (reconstruction + divergence) / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
