"""Protein folds: a line with the loss and activation statistics is printed for each layer of each step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "sync"
DEVICE = "cuda"
ALSO = ("launch",)


class FoldNet(nn.Module):
    def __init__(self, width: int = 512, depth: int = 12) -> None:
        super().__init__()
        self.residues = nn.Embedding(24, width)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(depth))
        self.folds = nn.Linear(width, 40)

    def forward(self, residues: Tensor) -> Tensor:
        x = self.residues(residues).transpose(1, 2)
        for depth, layer in enumerate(self.layers):
            x = x + torch.relu(layer(x))
            print(f"layer {depth}: mean {x.mean():.3f} std {x.std():.3f}")
        logits: Tensor = self.folds(x.mean(2))
        return logits


def train(device: str) -> Iterator[None]:
    model = FoldNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    residues = torch.randint(0, 24, (8, 128), device=device)
    folds = torch.randint(0, 40, (8,), device=device)
    for step in itertools.count():
        loss = nn.functional.cross_entropy(model(residues), folds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, "loss", loss)
        yield
