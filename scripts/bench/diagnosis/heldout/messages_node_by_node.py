"""A graph network gathers the neighbors of every node in a Python loop instead of one scatter over the edges."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "python"
DEVICE = "cpu"
ALSO = ("launch",)

NODES = 300


class Layer(nn.Module):
    """The mean of the neighbors, then a linear map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, width)
        self.others = nn.Linear(width, width)

    def forward(self, h: Tensor, neighbors: list[list[int]]) -> Tensor:
        """Compute the output for one batch."""
        means = []
        for node in range(h.shape[0]):
            total = torch.zeros_like(h[node])
            for other in neighbors[node]:
                total = total + h[other]
            means.append(total / max(len(neighbors[node]), 1))
        return torch.relu(self.own(h) + self.others(torch.stack(means)))


def train(device: str) -> Iterator[None]:
    """Classify the nodes of a random graph."""
    neighbors = torch.randint(0, NODES, (NODES, 4)).tolist()
    features, labels = torch.randn(NODES, 32, device=device), torch.randint(0, 5, (NODES,), device=device)
    first, second, head = Layer(32).to(device), Layer(32).to(device), nn.Linear(32, 5).to(device)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters(), *head.parameters()], lr=1e-2)
    while True:
        h = second(first(features, neighbors), neighbors)
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(h), labels).backward()
        optimizer.step()
        yield
