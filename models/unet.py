"""A U-Net with batch norm and "same" padding (after Ronneberger et al., "U-Net", 2015)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, inputs: int = 3, classes: int = 2, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.encoders = nn.ModuleList(double_conv(a, b) for a, b in zip([inputs, *widths], widths, strict=False))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(w, w // 2, 2, stride=2) for w in reversed(widths[1:]))
        self.decoders = nn.ModuleList(double_conv(w, w // 2) for w in reversed(widths[1:]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for encoder in self.encoders[:-1]:
            x = encoder(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.encoders[-1](x)
        for up, decoder, skip in zip(self.ups, self.decoders, reversed(skips), strict=True):
            x = decoder(torch.cat([skip, up(x)], 1))
        scores: Tensor = self.head(x)
        return scores


def example_inputs() -> Tensor:
    return torch.randn(8, 3, 256, 256)


def configure_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-3)
