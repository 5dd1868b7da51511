"""A rollout of a policy reads every action with .item() before the simulator may go on."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "sync"
DEVICE = "cuda"
ALSO = ("launch", "python", "cpu_fallback", "host_copies")


def train(device: str) -> Iterator[None]:
    """Reinforce a policy that steers a point to the origin."""
    policy = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4)).to(
        device
    )
    lift = torch.randn(2, 4096, device=device)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
    moves = [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)]
    while True:
        x, y = 5.0, -3.0
        logs, rewards = [], []
        for _ in range(64):
            state = torch.tensor([[x, y]], device=device) @ lift
            log_p = policy(state).log_softmax(dim=-1)
            action = int(torch.multinomial(log_p.exp(), 1).item())
            logs.append(log_p[0, action])
            x, y = x + moves[action][0], y + moves[action][1]
            rewards.append(-(x * x + y * y))
        returns = torch.tensor(rewards, device=device).flip(0).cumsum(0).flip(0)
        optimizer.zero_grad()
        (-torch.stack(logs) * (returns - returns.mean())).mean().backward()
        optimizer.step()
        yield
