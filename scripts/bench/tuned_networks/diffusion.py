"""A U-Net that predicts the noise of images of 32x32 (Ho et al., "Denoising Diffusion Probabilistic Models", 2020)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Residual(nn.Module):
    """Two convolutions with group norm, between which the embedding of the time is added."""

    def __init__(self, inputs: int, outputs: int, times: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(times, outputs)
        self.norm2, self.conv2 = nn.GroupNorm(32, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        """The features after the block."""
        out = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(times))[:, :, None, None]
        summed: Tensor = self.conv2(F.silu(self.norm2(out))) + self.skip(x)
        return summed


class Attention(nn.Module):
    """Attention between all pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = (
            nn.GroupNorm(32, width),
            nn.Conv2d(width, 3 * width, 1),
            nn.Conv2d(width, width, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The features after the block."""
        query, key, value = self.qkv(self.norm(x)).flatten(2).transpose(1, 2).unsqueeze(1).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(query, key, value).squeeze(1).transpose(1, 2)
        summed: Tensor = x + self.out(mixed.reshape(x.shape))
        return summed


class Stage(nn.Module):
    """A residual block, and attention where the resolution is the second one."""

    def __init__(self, inputs: int, outputs: int, times: int, level: int) -> None:
        super().__init__()
        self.residual = Residual(inputs, outputs, times)
        self.attention = Attention(outputs) if level == 1 else nn.Identity()

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        """The features after the stage."""
        features: Tensor = self.attention(self.residual(x, times))
        return features


class DiffusionUNet(nn.Module):
    """Four resolutions with two blocks each, and attention at 16x16."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        widths, times = [width, 2 * width, 2 * width, 2 * width], 4 * width
        self.width = width
        self.times = nn.Sequential(nn.Linear(width, times), nn.SiLU(), nn.Linear(times, times))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        self.shrink, self.grow = nn.ModuleList(), nn.ModuleList()
        inputs = width
        for level, outputs in enumerate(widths):
            for _ in range(2):
                self.downs.append(Stage(inputs, outputs, times, level))
                inputs = outputs
            self.shrink.append(nn.Conv2d(inputs, inputs, 3, 2, 1) if level < 3 else nn.Identity())
        self.middle = Residual(inputs, inputs, times)
        for level, outputs in reversed(list(enumerate(widths))):
            for _ in range(2):
                self.ups.append(Stage(inputs + outputs, outputs, times, level))
                inputs = outputs
            self.grow.append(nn.ConvTranspose2d(inputs, inputs, 4, 2, 1) if level else nn.Identity())
        self.last = nn.Sequential(nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        """The noise in `x` at the time `step`."""
        half = self.width // 2
        angles = step[:, None] * torch.exp(torch.arange(half, device=x.device) * (-math.log(10_000) / half))
        times = self.times(torch.cat([angles.sin(), angles.cos()], 1))
        x, skips = self.first(x), []
        for index, stage in enumerate(self.downs):
            x = stage(x, times)
            skips.append(x)
            if index % 2:
                x = self.shrink[index // 2](x)
        x = self.middle(x, times)
        for index, stage in enumerate(self.ups):
            x = stage(torch.cat([x, skips.pop()], 1), times)
            if index % 2:
                x = self.grow[index // 2](x)
        noise: Tensor = self.last(x)
        return noise


def example_inputs() -> tuple[Tensor, Tensor]:
    """A batch of images, and their times."""
    return torch.randn(32, 3, 32, 32), torch.randint(0, 1000, (32,))


def loss_fn(output: Tensor, x: Tensor, step: Tensor) -> Tensor:
    """The distance to the noise."""
    return F.mse_loss(output, x)


def configure_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer."""
    return torch.optim.Adam(model.parameters(), lr=2e-4)
