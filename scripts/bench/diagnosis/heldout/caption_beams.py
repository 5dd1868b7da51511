"""Image captions: between two forward passes, Python lists and sorts the beam candidates on the host."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

CAUSE = "python"
DEVICE = "cuda"
STEPS = 2
ALSO = ("sync", "unknown")


def extend(beams: list[tuple[float, list[int]]], scores: list[list[float]]) -> list[tuple[float, list[int]]]:
    candidates = []
    for (total, words), row in zip(beams, scores, strict=True):
        for word, score in enumerate(row):
            repeated = words[-8:].count(word)
            candidates.append((total + score - 2.0 * repeated, [*words, word]))
    candidates.sort(key=lambda pair: -pair[0] / (len(pair[1]) ** 0.7))
    return candidates[: len(beams)]


@torch.inference_mode()
def train(device: str) -> Iterator[None]:
    decoder = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 240)).to(device).eval()
    state = torch.randn(8, 512, device=device)
    beams: list[tuple[float, list[int]]] = [(0.0, [beam]) for beam in range(8)]
    while True:
        scores = decoder(state).log_softmax(-1).tolist()
        beams = extend(beams, scores)
        state = state.roll(1, 0)
        yield
