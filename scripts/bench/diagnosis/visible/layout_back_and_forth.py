"""Each block converts its input to channels_last and its output back."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "layout"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("build", "-i", "32,3,112,112", "--mode", "infer")
ALSO = ("pointwise", "precision")


class Converted(nn.Module):
    """A cheap activation between two conversions of the layout."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.Hardtanh(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Convert, activate, convert back."""
        x = self.act(x.contiguous(memory_format=torch.channels_last))
        return x.contiguous(memory_format=torch.contiguous_format)


def build() -> nn.Module:
    """Return eight blocks behind a convolution."""
    return nn.Sequential(nn.Conv2d(3, 64, 3, stride=2, padding=1), *(Converted() for _ in range(8)))


def train(device: str) -> Iterator[None]:
    """Evaluate the blocks."""
    model = build().to(device)
    x = torch.randn(256 if device == "cuda" else 16, 3, 112, 112, device=device)
    with torch.inference_mode():
        while True:
            model(x)
            yield
