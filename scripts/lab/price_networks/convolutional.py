"""Random networks of convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scripts.lab.price_networks import parts
from scripts.lab.price_networks.parts import Draw, Layer, Network, concatenated, residual
from scripts.lab.price_networks.sequential import Attention

Kernel = int | tuple[int, ...]
CONVOLUTIONS: Final[dict[int, Layer]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
BATCH_NORMS: Final[dict[int, Layer]] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
SIZES: Final = {1: (256, 1000, 4000, 16000), 2: (32, 64, 96, 128, 160, 224, 256), 3: (16, 32, 64)}
KERNELS: Final[dict[int, tuple[Kernel, ...]]] = {
    1: (3, 3, 5, 7, 15),
    2: (3, 3, 3, 5, 7),
    3: (3, 3, (1, 3, 3), (3, 1, 1)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What the convolutions of a network share. `dims`: 1 for signals, 2 for images, 3 for videos."""

    dims: int
    norm: Layer
    activation: Layer
    kernel: Kernel
    dilation: int = 1
    groups: int = 1
    excite: bool = False
    bias: bool = False

    @classmethod
    def drawn(cls, draw: Draw, dims: int) -> Style:
        """A random style."""
        usual = draw.chance(0.7)
        instance_norm = partial(nn.InstanceNorm2d, affine=True) if dims == 2 else parts.group_norm
        return cls(
            dims=dims,
            norm=BATCH_NORMS[dims]
            if usual
            else draw.layer(parts.group_norm, instance_norm, lambda channels: nn.Identity()),
            activation=draw.layer(nn.ReLU, partial(nn.ReLU, inplace=True)) if usual else draw.activation(),
            kernel=draw.pick(*KERNELS[dims]),
            dilation=draw.pick(1, 1, 1, 2, 4),
            groups=draw.pick(1, 1, 4, 32),
            excite=draw.chance(0.3) and dims == 2,
            bias=draw.chance(0.3),
        )

    def convolution(self, inputs: int, outputs: int, kernel: Kernel, stride: int = 1, **options: Any) -> nn.Module:
        """A convolution that pads."""
        sizes = (kernel,) * self.dims if isinstance(kernel, int) else kernel
        padding = tuple(options.get("dilation", 1) * (size // 2) for size in sizes)
        return CONVOLUTIONS[self.dims](inputs, outputs, sizes, stride, padding, bias=self.bias, **options)

    def unit(self, *sizes: Any, active: bool = True, **options: Any) -> list[nn.Module]:
        """A convolution, its normalization and, if `active`, the activation."""
        layers = [self.convolution(*sizes, **options), self.norm(sizes[1])]
        return [*layers, self.activation()] if active else layers


def _plain(draw: Draw, style: Style, inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(*style.unit(inputs, outputs, style.kernel, stride))


def _bottleneck(style: Style, inputs: int, inner: int, outputs: int, stride: int, **options: Any) -> list[nn.Module]:
    layers = [*style.unit(inputs, inner, 1), *style.unit(inner, inner, style.kernel, stride, **options)]
    if style.excite:
        layers.append(parts.squeeze_excite(inner, max(8, inner // 16)))
    return [*layers, *style.unit(inner, outputs, 1, active=False)]


def _residual(draw: Draw, style: Style, inputs: int, outputs: int, stride: int) -> nn.Module:
    """A block of ResNet or ResNeXt; `outputs` are those of its inner convolution if it has a bottleneck."""
    last = partial(style.unit, outputs, outputs, style.kernel, active=False)
    if draw.chance(0.5):
        groups = math.gcd(outputs // 2, style.groups)
        layers = _bottleneck(style, inputs, outputs // 2, outputs, stride, groups=groups, dilation=style.dilation)
    else:
        layers = [*style.unit(inputs, outputs, style.kernel, stride, dilation=style.dilation), *last()]
    skip = (
        nn.Sequential(*style.unit(inputs, outputs, 1, stride, active=False))
        if inputs != outputs or stride > 1
        else None
    )
    return nn.Sequential(residual(*layers, skip=skip), style.activation())


def _inverted(draw: Draw, style: Style, inputs: int, outputs: int, stride: int) -> nn.Module:
    """A block of MobileNet or EfficientNet, with a depthwise convolution."""
    inner = inputs * draw.pick(1, 4, 6)
    layers = _bottleneck(style, inputs, inner, outputs, stride, groups=inner)
    return residual(*layers) if inputs == outputs and stride == 1 else nn.Sequential(*layers)


def _dense(draw: Draw, style: Style, inputs: int, outputs: int, stride: int) -> nn.Module:
    """Two layers of DenseNet, whose outputs are concatenated to their inputs, and a transition."""
    growth, layers = draw.width(16, 24, 32), list[nn.Module]()
    for channels in (inputs, inputs + growth):
        first = [style.norm(channels), style.activation(), *style.unit(channels, 4 * growth, 1)]
        layers.append(concatenated(nn.Identity(), nn.Sequential(*first, style.convolution(4 * growth, growth, 3))))
    layers += style.unit(inputs + 2 * growth, outputs, 1)
    return nn.Sequential(*layers, nn.AvgPool2d(2)) if stride > 1 else nn.Sequential(*layers)


def _branches(draw: Draw, style: Style, inputs: int, outputs: int, stride: int) -> nn.Module:
    """A block of Inception, with kernels that are not square."""
    width = outputs // 4
    long = [*style.unit(inputs, width, 1), *style.unit(width, width, (1, 7)), *style.unit(width, width, (7, 1))]
    square = [*style.unit(inputs, width, 1), *style.unit(width, width, 5)]
    pooled = [nn.AvgPool2d(3, 1, 1), *style.unit(inputs, width, 1)]
    branches = [nn.Sequential(*each) for each in (style.unit(inputs, width, 1), long, square, pooled)]
    return nn.Sequential(concatenated(*branches), nn.MaxPool2d(3, stride, 1))


def _linear(draw: Draw, style: Style, inputs: int, outputs: int, stride: int) -> nn.Module:
    """A block of ConvNeXt: a depthwise convolution, then linear layers in channels-last order."""
    enter = nn.Identity() if stride == 1 and inputs == outputs else nn.Conv2d(inputs, outputs, stride, stride)
    first = nn.Conv2d(outputs, outputs, 7, padding=3, groups=outputs)
    layers = [nn.LayerNorm(outputs), nn.Linear(outputs, 4 * outputs), nn.GELU(), nn.Linear(4 * outputs, outputs)]
    there, back = parts.Call(lambda x: x.permute(0, 2, 3, 1)), parts.Call(lambda x: x.permute(0, 3, 1, 2))
    return nn.Sequential(enter, residual(first, there, *layers, _Scale(outputs), back))


class _Scale(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((channels,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


Block = Callable[[Draw, Style, int, int, int], nn.Module]
BLOCKS: Final[dict[str, Block]] = {
    "vgg": _plain,
    "resnet": _residual,
    "mobile": _inverted,
    "densenet": _dense,
    "inception": _branches,
    "convnext": _linear,
}


def classifier(draw: Draw, block: Block, dims: int = 2) -> Network:
    """A stem, four stages of blocks of one kind, and a linear layer. Each stage but the first halves the size."""
    size, width, style = draw.choice(SIZES[dims]), draw.width(16, 32, 64, 96), Style.drawn(draw, dims)
    reduction, channels = draw.pick(2, 4) if size >= 96 else 1, draw.pick(1, 3) if dims > 1 else draw.pick(1, 64, 80)
    layers = style.unit(channels, width, draw.pick(3, 5, 7) if reduction > 1 else 3, reduction)
    inputs = width
    for stage in range(4):
        for index in range(draw.pick(1, 2, 2)):
            layers.append(block(draw, style, inputs, width << stage, 2 if stage and not index else 1))
            inputs = width << stage
    pool: Layer = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}[dims]
    head = [pool(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(inputs, draw.pick(10, 100, 1000))]
    batch = draw.batch((size / reduction) ** dims * width, 2e7)
    return nn.Sequential(*layers, *head), parts.normal(batch, channels, *(size,) * dims), parts.cross_entropy


def unet(draw: Draw) -> Network:
    """Skip connections between sizes, and one of five kinds of upsampling."""
    size, width, style = draw.pick(64, 96, 128, 256, 512), draw.width(16, 32, 64), Style.drawn(draw, 2)
    enlarge = draw.choice(UPSAMPLINGS)

    def pair(inputs: int, outputs: int) -> list[nn.Module]:
        return [*style.unit(inputs, outputs, style.kernel), *style.unit(outputs, outputs, style.kernel)]

    def level(inputs: int, channels: int, depth: int) -> nn.Module:
        if not depth:
            return nn.Sequential(*pair(inputs, channels))
        inner = level(channels, 2 * channels, depth - 1)
        below = nn.Sequential(nn.MaxPool2d(2), inner, enlarge(channels))
        return nn.Sequential(*pair(inputs, channels), concatenated(nn.Identity(), below), *pair(2 * channels, channels))

    channels, outputs = draw.pick(1, 3, 4), draw.pick(1, 2, 21)
    network = nn.Sequential(level(channels, width, 3), nn.Conv2d(width, outputs, 1))
    batch = draw.batch(size * size * width, 6e7)
    return network, parts.normal(batch, channels, size, size), parts.cross_entropy if outputs > 1 else parts.binary


UPSAMPLINGS: Final[list[Callable[[int], nn.Module]]] = [
    lambda channels: nn.ConvTranspose2d(2 * channels, channels, 2, 2),
    lambda channels: nn.ConvTranspose2d(2 * channels, channels, 4, 2, 1, bias=False),
    lambda channels: nn.Sequential(nn.Conv2d(2 * channels, 4 * channels, 3, 1, 1), nn.PixelShuffle(2), nn.PReLU()),
    lambda channels: nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(2 * channels, channels, 1)),
    lambda channels: nn.Sequential(
        nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(2 * channels, channels, 3, 1, 1)
    ),
]


class _TimeBlock(nn.Module):
    """A residual block that adds an embedding of the time, and attention between pixels."""

    def __init__(self, inputs: int, outputs: int, time: int, attention: bool = False) -> None:
        super().__init__()
        self.first = nn.Sequential(parts.group_norm(inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, 1, 1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, outputs))
        self.second = nn.Sequential(parts.group_norm(outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, 1, 1))
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.norm = parts.group_norm(outputs)
        self.attention = Attention(outputs, 4) if attention else None

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y: Tensor = self.skip(x) + self.second(self.first(x) + self.time(time)[:, :, None, None])
        if self.attention is not None:
            y = y + self.attention(self.norm(y).flatten(2).transpose(1, 2)).transpose(1, 2).reshape(y.shape)
        return y


class _Denoiser(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, time = width, 4 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        layers = [nn.Conv2d(3, width, 3, 1, 1), _TimeBlock(width, width, time), nn.Conv2d(width, width, 3, 2, 1)]
        layers += [_TimeBlock(width, 2 * width, time), nn.Conv2d(2 * width, 4 * width, 3, 2, 1)]
        layers += [_TimeBlock(4 * width, 4 * width, time, attention=True) for _ in range(2)]
        layers += [nn.Upsample(scale_factor=2), _TimeBlock(4 * width, 2 * width, time), nn.Upsample(scale_factor=2)]
        self.layers = nn.ModuleList([*layers, _TimeBlock(2 * width, width, time), nn.Conv2d(width, 3, 3, 1, 1)])

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        frequencies = torch.exp(torch.arange(self.width // 2, device=x.device) * (-math.log(1e4) / (self.width // 2)))
        angles = steps[:, None].float() * frequencies
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(x.dtype))
        for layer in self.layers:
            x = layer(x, time) if isinstance(layer, _TimeBlock) else layer(x)
        return x


def diffusion(draw: Draw) -> Network:
    """Predicts the noise of an image from its time step."""
    size, width = draw.pick(32, 64), draw.pick(32, 64, 96, 128)
    batch = draw.batch(size * size * width, 6e6)
    images, steps = parts.normal(batch, 3, size, size), parts.indices(1000, batch)
    return _Denoiser(width), lambda device: (*images(device), *steps(device)), parts.regression(F.mse_loss)
