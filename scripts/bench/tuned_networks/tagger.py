"""A bidirectional LSTM that tags words (after Huang et al., "Bidirectional LSTM-CRF Models for Sequence Tagging", 2015)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, TAGS = 20_000, 17


class Tagger(nn.Module):
    """Embedding, two LSTM layers in both directions, scores of the tags."""

    def __init__(self, width: int = 128, hidden: int = 256) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, TAGS)

    def forward(self, words: Tensor) -> Tensor:
        """Scores of the tags of each word."""
        scores: Tensor = self.head(self.lstm(self.words(words))[0])
        return scores


def example_inputs() -> Tensor:
    """A batch of sentences of 64 words."""
    return torch.randint(0, WORDS, (64, 64))


def loss_fn(output: Tensor, words: Tensor) -> Tensor:
    """Cross entropy over all words."""
    return F.cross_entropy(output.flatten(0, 1), words.flatten() % TAGS)


def configure_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer."""
    return torch.optim.Adam(model.parameters(), lr=1e-3)
