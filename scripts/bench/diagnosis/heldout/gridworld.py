"""A policy gradient agent: the environment is simulated in plain Python between the small forward passes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "python"
DEVICE = "cpu"
STEPS = 2
ALSO = ("unknown",)

SIZE = 16


class Gridworld:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.walls = {(self.rng.randrange(SIZE), self.rng.randrange(SIZE)) for _ in range(40)}
        self.place = (0, 0)

    def distances(self) -> list[int]:
        """Breadth-first search from the agent, for the reward and the observation."""
        steps = {self.place: 0}
        queue = [self.place]
        for row, column in queue:
            for cell in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
                if cell not in steps and cell not in self.walls and 0 <= cell[0] < SIZE and 0 <= cell[1] < SIZE:
                    steps[cell] = steps[row, column] + 1
                    queue.append(cell)
        return [steps.get((row, column), 99) for row in range(SIZE) for column in range(SIZE)]

    def step(self, action: int) -> tuple[list[int], float]:
        before = self.distances()
        row, column = self.place
        move = ((1, 0), (-1, 0), (0, 1), (0, -1))[action]
        cell = ((row + move[0]) % SIZE, (column + move[1]) % SIZE)
        self.place = self.place if cell in self.walls else cell
        after = self.distances()
        return after, (before[-1] - after[-1]) / SIZE


def train(device: str) -> Iterator[None]:
    policy = nn.Sequential(nn.Linear(SIZE * SIZE, 64), nn.Tanh(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    env = Gridworld(0)
    while True:
        observation, log_probs, rewards = env.distances(), [], []
        for _ in range(8):
            logits: Tensor = policy(torch.tensor(observation, dtype=torch.float32) / 50)
            choice = torch.distributions.Categorical(logits=logits)
            action = choice.sample()
            observation, reward = env.step(int(action))
            log_probs.append(choice.log_prob(action))
            rewards.append(reward)
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        loss = -(torch.stack(log_probs) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
