"""Each block converts its input to channels_last and its output back."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

CAUSE = "layout"
FORMS = ("plain", "stacks", "analyze")
ANALYZE = ("build", "-i", "32,64,56,56")
ALSO = ("pointwise", "precision")


class Converted(nn.Module):
    """A cheap convolution between two conversions of the layout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(width, width, 1, groups=8)

    def forward(self, x: Tensor) -> Tensor:
        """Convert, convolve, convert back."""
        x = self.mix(x.contiguous(memory_format=torch.channels_last))
        return x.contiguous(memory_format=torch.contiguous_format)


def build() -> nn.Module:
    """Return eight blocks."""
    return nn.Sequential(*(Converted(64) for _ in range(8)))


def train(device: str) -> Iterator[None]:
    """Evaluate the blocks."""
    model = build().to(device)
    x = torch.randn(256 if device == "cuda" else 16, 64, 56, 56, device=device)
    with torch.inference_mode():
        while True:
            model(x)
            yield
