"""The collate function of a text classifier splits and hashes every document in Python between two short training steps."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

CAUSE = "data"
DEVICE = "cpu"

BUCKETS = 20_000
WORDS = ["alpha", "beta", "gamma", "delta", "station", "river", "engine", "tomorrow", "yellow", "paper"]


def collate(documents: list[tuple[str, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Hash words and pairs of words into buckets."""
    ids: list[int] = []
    offsets = []
    for text, _ in documents:
        offsets.append(len(ids))
        words = [word.strip(".,!?").lower() for word in text.split()]
        ids += [zlib.crc32(word.encode()) % BUCKETS for word in words]
        ids += [zlib.crc32(f"{a} {b}".encode()) % BUCKETS for a, b in pairwise(words)]
    return torch.tensor(ids), torch.tensor(offsets), torch.tensor([label for _, label in documents])


def train(device: str) -> Iterator[None]:
    """Train a bag of words."""
    rng = random.Random(0)
    corpus = [(" ".join(rng.choices(WORDS, k=400)), rng.randrange(4)) for _ in range(1024)] * 8
    loader = DataLoader(corpus, batch_size=96, shuffle=True, collate_fn=collate)
    embed = nn.EmbeddingBag(BUCKETS, 16, mode="mean").to(device)
    head = nn.Linear(16, 4).to(device)
    optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.5)
    for ids, offsets, labels in loader:
        loss = nn.functional.cross_entropy(head(embed(ids.to(device), offsets.to(device))), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
