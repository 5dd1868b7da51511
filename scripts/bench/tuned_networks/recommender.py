"""Embedding bags, layers, and products of all pairs (after Naumov et al., "Deep Learning Recommendation Model", 2019)."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FIELDS, ROWS, BAG = 26, 20_000, 4


def layers(*widths: int) -> nn.Sequential:
    """Linear layers with ReLU."""
    pairs = pairwise(widths)
    return nn.Sequential(*(part for a, b in pairs for part in (nn.Linear(a, b), nn.ReLU())))


class Recommender(nn.Module):
    """A table for each field of identifiers, and layers for the numbers."""

    pairs: Tensor

    def __init__(self, numbers: int = 13, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, width, mode="sum") for _ in range(FIELDS))
        self.bottom = layers(numbers, 512, 256, width)
        pairs = (FIELDS + 1) * FIELDS // 2
        self.top = nn.Sequential(layers(pairs + width, 512, 256), nn.Linear(256, 1))
        self.register_buffer("pairs", torch.tril_indices(FIELDS + 1, FIELDS + 1, -1))

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The score of each row."""
        dense = self.bottom(numbers)
        fields = torch.stack([dense, *(table(ids[:, i]) for i, table in enumerate(self.tables))], 1)
        products = (fields @ fields.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        scores: Tensor = self.top(torch.cat([dense, products], 1)).squeeze(1)
        return scores


def example_inputs() -> tuple[Tensor, Tensor]:
    """A batch of numbers and identifiers."""
    return torch.randn(2048, 13), torch.randint(0, ROWS, (2048, FIELDS, BAG))


def loss_fn(output: Tensor, numbers: Tensor, ids: Tensor) -> Tensor:
    """Whether the row was clicked."""
    return F.binary_cross_entropy_with_logits(output, (numbers[:, 0] > 0).to(output.dtype))


def configure_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer."""
    return torch.optim.SGD(model.parameters(), lr=0.1)
