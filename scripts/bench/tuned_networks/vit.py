"""ViT-B/16 (Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020)."""

import torch
from torch import Tensor, nn


class ViT(nn.Module):
    """Patches of 16x16, twelve encoder layers, and a class token."""

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12, classes: int = 1000) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 14 * 14 + 1, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        scores: Tensor = self.head(self.encoder(x)[:, 0])
        return scores


def example_inputs() -> Tensor:
    """A batch of images."""
    return torch.randn(32, 3, 224, 224)


def configure_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer."""
    return torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
