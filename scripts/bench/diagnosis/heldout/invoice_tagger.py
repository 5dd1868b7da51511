"""Tags of invoice words: every batch has another length, and the compiled model has `dynamic=False`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "changing_shapes"
DEVICE = "cpu"
WARMUP = 2
FORMS = ("plain",)
ALSO = ("compile",)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(8000, 64)
        self.mixers = nn.ModuleList(nn.Conv1d(64, 64, 3, padding=1) for _ in range(4))
        self.tags = nn.Linear(64, 9)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words).transpose(1, 2)
        for mixer in self.mixers:
            x = x + torch.relu(mixer(x))
        tags: Tensor = self.tags(x.transpose(1, 2))
        return tags


def train(device: str) -> Iterator[None]:
    model = Tagger().to(device)
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in itertools.count():
        words = torch.randint(0, 8000, (16, 40 + 9 * step), device=device)
        tags = torch.randint(0, 9, words.shape, device=device)
        loss = nn.functional.cross_entropy(compiled(words).flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
