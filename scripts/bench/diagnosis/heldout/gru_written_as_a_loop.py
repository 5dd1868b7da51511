"""A gated recurrent network is written as a Python loop over 200 time steps, each with a dozen tiny operators."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "launch"
DEVICE = "any"
ALSO = ("python",)


class Gru(nn.Module):
    """A gated recurrent unit from single operators."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.update = nn.Linear(inputs + hidden, hidden)
        self.reset = nn.Linear(inputs + hidden, hidden)
        self.candidate = nn.Linear(inputs + hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output for one batch."""
        h = x.new_zeros(x.shape[0], self.hidden)
        for t in range(x.shape[1]):
            both = torch.cat([x[:, t], h], dim=1)
            z = torch.sigmoid(self.update(both))
            r = torch.sigmoid(self.reset(both))
            n = torch.tanh(self.candidate(torch.cat([x[:, t], r * h], dim=1)))
            h = (1 - z) * n + z * h
        return h


def train(device: str) -> Iterator[None]:
    """Train on random series of sensor values."""
    rnn, head = Gru(8, 32).to(device), nn.Linear(32, 1).to(device)
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-3)
    x, y = torch.randn(16, 200, 8, device=device), torch.randn(16, 1, device=device)
    while True:
        optimizer.zero_grad()
        nn.functional.mse_loss(head(rnn(x)), y).backward()
        optimizer.step()
        yield
