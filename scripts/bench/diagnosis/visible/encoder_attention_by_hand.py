"""An encoder computes softmax(QK)V from single operators, in inference."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "attention"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("build", "-i", "4,1024,128", "--mode", "infer")
ALSO = ("pointwise", "layer", "copies", "precision")


class Block(nn.Module):
    """Attention with a bias for distances, and no other layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Attend from each token to all tokens."""
        batch, tokens, width = x.shape
        q, k, v = (
            layer(x).reshape(batch, tokens, self.heads, -1).transpose(1, 2).flatten(0, 1)
            for layer in (self.query, self.key, self.value)
        )
        weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)) / (width // self.heads) ** 0.5, dim=-1)
        mixed: Tensor = (
            torch.bmm(weights, v).unflatten(0, (batch, self.heads)).transpose(1, 2).reshape(batch, tokens, width)
        )
        return mixed


def build() -> nn.Module:
    """Return three blocks."""
    return nn.Sequential(*(Block(128, 8) for _ in range(3)))


def train(device: str) -> Iterator[None]:
    """Evaluate the encoder."""
    model = build().to(device).eval()
    x = torch.randn(4, 2048 if device == "cuda" else 512, 128, device=device)
    with torch.no_grad():
        while True:
            model(x)
            yield
