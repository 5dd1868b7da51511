"""A graph network loops over many small edge types in Python."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "launch"
DEVICE = "cuda"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("build", "-i", "512,32")
ALSO = ("python", "layer")


class Relations(nn.Module):
    """One small product and one scatter for each type of edges."""

    def __init__(self, types: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(types))
        self.register_buffer("edges", torch.randint(512, (types, 2, 40)))
        self.edges: Tensor

    def forward(self, nodes: Tensor) -> Tensor:
        """Send the messages of each type."""
        result = nodes
        for index, layer in enumerate(self.layers):
            source, target = self.edges[index]
            result = result.index_add(0, target, layer(nodes[source]))
        return result.relu()


def build() -> nn.Module:
    """Return a network with 60 types of edges."""
    return Relations(60, 32)


def train(device: str) -> Iterator[None]:
    """Train the network on one graph."""
    model = build().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    nodes = torch.randn(512, 32, device=device)
    while True:
        loss = model(nodes).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
