"""Playlist completion: a dense gradient of a 400,000-row embedding table for a few hundred rows per step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "embedding"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("PlaylistModel", "-i", "32,10:int64[0:400000]", "-i", "32,5:int64[0:400000]", "--optimizer", "sgd")
DEVICE = "cpu"
ALSO = ("optimizer",)


class PlaylistModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.songs = nn.Embedding(400_000, 48)
        self.mix = nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 48))

    def forward(self, playlist: Tensor, candidates: Tensor) -> Tensor:
        taste = self.mix(self.songs(playlist).mean(1))
        scores: Tensor = (self.songs(candidates) @ taste[:, :, None])[:, :, 0]
        return scores


def train(device: str) -> Iterator[None]:
    model = PlaylistModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    while True:
        playlist = torch.randint(0, 400_000, (32, 10))
        candidates = torch.randint(0, 400_000, (32, 5))
        scores = model(playlist, candidates)
        loss = nn.functional.cross_entropy(scores, torch.zeros(32, dtype=torch.long))
        model.zero_grad()
        loss.backward()
        optimizer.step()
        yield
