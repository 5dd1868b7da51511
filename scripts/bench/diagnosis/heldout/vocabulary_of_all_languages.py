"""The cross-entropy over a vocabulary of 250,000 words in float32 outlasts the small language model in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "loss"
DEVICE = "cuda"
ALSO = ("layer", "memory", "pointwise")

WORDS = 250_000


def train(device: str) -> Iterator[None]:
    """Train a recurrent language model in bfloat16 with its loss in float32."""
    embed = nn.Embedding(WORDS, 128, sparse=True).to(device, torch.bfloat16)
    body = nn.LSTM(128, 128, batch_first=True).to(device, torch.bfloat16)
    head = nn.Linear(128, WORDS, bias=False).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD([*embed.parameters(), *body.parameters(), *head.parameters()], lr=0.1)
    tokens = torch.randint(0, WORDS, (64, 65), device=device)
    while True:
        hidden, _ = body(embed(tokens[:, :-1]))
        logits = head(hidden).flatten(0, 1).float()
        loss = nn.functional.cross_entropy(logits, tokens[:, 1:].flatten(), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
