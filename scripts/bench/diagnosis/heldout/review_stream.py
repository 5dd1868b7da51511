"""Sentiment of reviews: an IterableDataset decompresses, parses and tokenizes JSON lines between the steps."""

from __future__ import annotations

import gzip
import json
import random
import re
import zlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

CAUSE = "data"
DEVICE = "cpu"
STEPS = 1

WORDS = ["good", "bad", "fine", "Terrible!", "great", "slow", "it's", "broken", "love", "hate", "okay,", "works."]


def shard(reviews: int) -> bytes:
    rng = random.Random(0)
    lines = (
        json.dumps({"text": " ".join(rng.choices(WORDS, k=2500)), "stars": rng.randint(1, 5)}) for _ in range(reviews)
    )
    return gzip.compress("\n".join(lines).encode())


class Reviews(IterableDataset[tuple[Tensor, int]]):
    def __init__(self) -> None:
        self.data = shard(64)

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        while True:
            for line in gzip.decompress(self.data).decode().splitlines():
                review = json.loads(line)
                tokens = re.findall(r"[a-z']+|[!?.,]", review["text"].lower())
                codes = [zlib.crc32(token.encode()) % 5000 for token in tokens[:64]]
                yield torch.tensor(codes), review["stars"] - 1


class Sentiment(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5000, 32)
        self.hidden = nn.Linear(32, 32)
        self.stars = nn.Linear(32, 5)

    def forward(self, codes: Tensor) -> Tensor:
        state = torch.tanh(self.hidden(self.embedding(codes).mean(1)))
        logits: Tensor = self.stars(state)
        return logits


def train(device: str) -> Iterator[None]:
    model = Sentiment()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for codes, stars in DataLoader(Reviews(), batch_size=8):
        loss = nn.functional.cross_entropy(model(codes), stars)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield
