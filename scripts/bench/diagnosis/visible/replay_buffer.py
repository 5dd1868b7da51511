"""A reinforcement-learning loop samples its batch from a list of Python objects."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "python"
ALSO = ("data", "launch")


def train(device: str) -> Iterator[None]:
    """Train a value function on sampled transitions."""
    chance = random.Random(0)
    memory = [([chance.random() for _ in range(64)], chance.randrange(4), chance.random()) for _ in range(4000)]
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        chosen = [memory[chance.randrange(len(memory))] for _ in range(2048)]
        states = torch.tensor([[2 * value - 1 for value in state] for state, _, _ in chosen]).to(device)
        actions = torch.tensor([action for _, action, _ in chosen]).to(device)
        rewards = torch.tensor([reward for _, _, reward in chosen]).to(device)
        values = model(states).gather(1, actions[:, None])[:, 0]
        loss = nn.functional.mse_loss(values, rewards)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
