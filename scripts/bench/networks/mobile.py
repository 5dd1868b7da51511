"""Image networks with separable, grouped, branching and dilated convolutions, and generators."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scripts.bench.networks.images import Apply, Residual, bare, basic, head, unit


def convnext() -> nn.Module:
    """ConvNeXt (Liu et al., 2022), small: depthwise 7x7, norms and linears over the last dimension."""

    def block(w: int) -> Residual:
        return Residual(nn.Sequential(
            nn.Conv2d(w, w, 7, padding=3, groups=w), Apply(lambda x: x.permute(0, 2, 3, 1)), nn.LayerNorm(w),
            nn.Linear(w, 4 * w), nn.GELU(), nn.Linear(4 * w, w), Apply(lambda x: x.permute(0, 3, 1, 2)),
        ))  # fmt: skip

    stem = [
        nn.Conv2d(3, 64, 4, 4),
        block(64),
        block(64),
        nn.Conv2d(64, 128, 2, 2),
        block(128),
        block(128),
        nn.Conv2d(128, 256, 2, 2),
        block(256),
    ]
    return nn.Sequential(*stem, *head(256, 1000))


def mobilenet() -> nn.Module:
    """MobileNet (Howard et al., 2017)."""
    rows = (
        (32, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
        (512, 1024, 2),
    )
    return nn.Sequential(
        unit(3, 32, 3, 2), *(nn.Sequential(unit(i, i, 3, s, i), unit(i, o, 1)) for i, o, s in rows), *head(1024, 1000)
    )


class Squeeze(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(width, width // 4, 1),
            nn.ReLU(),
            nn.Conv2d(width // 4, width, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The input, weighted by channel."""
        out: Tensor = x * self.inner(x)
        return out


def inverted() -> nn.Module:
    """MobileNetV3's blocks: expand, depthwise, squeeze, project."""

    def block(i: int, o: int, k: int, s: int) -> nn.Module:
        m = 4 * i
        inner = nn.Sequential(
            unit(i, m, 1, act=nn.Hardswish()), unit(m, m, k, s, m, act=nn.Hardswish()), Squeeze(m), *bare(unit(m, o, 1))
        )
        return Residual(inner) if s == 1 and i == o else inner

    rows = (
        (16, 24, 3, 2),
        (24, 24, 3, 1),
        (24, 40, 5, 2),
        (40, 40, 5, 1),
        (40, 80, 3, 2),
        (80, 80, 5, 1),
        (80, 160, 5, 2),
    )
    return nn.Sequential(
        unit(3, 16, 3, 2, act=nn.Hardswish()),
        *(block(*r) for r in rows),
        unit(160, 960, 1, act=nn.Hardswish()),
        *head(960, 1000),
    )


def shufflenet() -> nn.Module:
    """ShuffleNet's grouped 1x1 layers and channel shuffle (Zhang et al., 2017)."""

    def block(w: int) -> Residual:
        return Residual(
            nn.Sequential(
                unit(w, w, 1, g=4), nn.ChannelShuffle(4), *bare(unit(w, w, 3, g=w)), *bare(unit(w, w, 1, g=4))
            ),
            None,
            nn.ReLU(),
        )

    return nn.Sequential(
        unit(3, 48, 3, 2),
        nn.MaxPool2d(3, 2, 1),
        block(48),
        unit(48, 96, 3, 2),
        block(96),
        block(96),
        unit(96, 192, 3, 2),
        block(192),
        *head(192, 1000),
    )


class Dense(nn.Module):
    """DenseNet's block: every layer reads the outputs of all earlier layers."""

    def __init__(self, width: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.Sequential(
                    nn.BatchNorm2d(width + i * growth),
                    nn.ReLU(),
                    nn.Conv2d(width + i * growth, growth, 3, padding=1, bias=False),
                )
                for i in range(layers)
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the input and the outputs of all layers."""
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


def densenet() -> nn.Module:
    """DenseNet (Huang et al., 2016), short."""
    between = [
        unit(64, 64, 7, 2),
        nn.MaxPool2d(2),
        Dense(64, 24, 6),
        nn.Conv2d(208, 104, 1),
        nn.AvgPool2d(2),
        Dense(104, 24, 8),
        nn.BatchNorm2d(296),
        nn.ReLU(),
    ]
    between[0] = unit(3, 64, 7, 2)
    return nn.Sequential(*between, *head(296, 1000))


class Branches(nn.Module):
    """Several branches of the same input, concatenated along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """The branches' outputs, concatenated."""
        return torch.cat([b(x) for b in self.branches], 1)


def inception() -> nn.Module:
    """Inception's blocks (Szegedy et al., 2015): 1x1, 5x5, and 7x7 in two."""

    def block(i: int) -> Branches:
        return Branches(
            unit(i, 64, 1),
            nn.Sequential(unit(i, 48, 1), unit(48, 64, 5)),
            nn.Sequential(unit(i, 64, 1), unit(64, 64, (1, 7)), unit(64, 96, (7, 1))),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), unit(i, 32, 1)),
        )

    return nn.Sequential(
        unit(3, 32, 3, 2),
        unit(32, 64, 3),
        nn.MaxPool2d(3, 2),
        block(64),
        block(256),
        nn.MaxPool2d(3, 2),
        block(256),
        *head(256, 1000),
    )


def squeezenet() -> nn.Module:
    """SqueezeNet's fire modules (Iandola et al., 2016)."""

    def fire(i: int, s: int, e: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(i, s, 1),
            nn.ReLU(inplace=True),
            Branches(nn.Conv2d(s, e, 1), nn.Conv2d(s, e, 3, padding=1)),
            nn.ReLU(inplace=True),
        )

    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        fire(64, 16, 64),
        fire(128, 16, 64),
        nn.MaxPool2d(3, 2),
        fire(128, 32, 128),
        fire(256, 48, 192),
        nn.Dropout(),
        nn.Conv2d(384, 1000, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def large_kernels(k: int = 15) -> nn.Module:
    """Dense convolutions of large kernels."""
    return nn.Sequential(
        nn.Conv2d(3, 24, k, padding=k // 2),
        nn.ReLU(),
        nn.Conv2d(24, 40, k, padding=k // 2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(40, 32, k - 4, padding=k // 2 - 2),
        nn.ReLU(),
        *head(32, 10),
    )


def replk() -> nn.Module:
    """RepLKNet's blocks (Ding et al., 2022): depthwise kernels of 31 and 13."""

    def block(w: int, k: int) -> Residual:
        return Residual(nn.Sequential(unit(w, w, 1), unit(w, w, k, 1, w), *bare(unit(w, w, 1))))

    return nn.Sequential(
        unit(3, 32, 3, 2), unit(32, 32, 3, 2), block(32, 31), unit(32, 64, 3, 2), block(64, 13), *head(64, 100)
    )


def deeplab() -> nn.Module:
    """Atrous pyramid of dilations 6, 12 and 18 (Chen et al., 2017), resized to the input."""
    pyramid = Branches(unit(256, 64, 1), unit(256, 64, 3, d=6), unit(256, 64, 3, d=12), unit(256, 64, 3, d=18))
    trunk = [
        unit(3, 64, 7, 2),
        nn.MaxPool2d(3, 2, 1),
        basic(64, 128, 2),
        unit(128, 256, 3, d=2),
        unit(256, 256, 3, d=4),
    ]
    return nn.Sequential(
        *trunk,
        pyramid,
        unit(256, 64, 1),
        nn.Dropout(0.5),
        nn.Conv2d(64, 21, 1),
        nn.Upsample(scale_factor=8, mode="bilinear"),
    )


def generator() -> nn.Module:
    """DCGAN's generator (Radford et al., 2015)."""

    def up(i: int, o: int, s: int = 2, p: int = 1) -> nn.Sequential:
        return nn.Sequential(nn.ConvTranspose2d(i, o, 4, s, p, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))

    return nn.Sequential(
        up(100, 512, 1, 0), up(512, 256), up(256, 128), up(128, 64), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()
    )


def discriminator() -> nn.Module:
    """DCGAN's discriminator."""

    def down(i: int, o: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, inplace=True))

    return nn.Sequential(
        nn.Conv2d(3, 64, 4, 2, 1),
        nn.LeakyReLU(0.2, inplace=True),
        down(64, 128),
        down(128, 256),
        down(256, 512),
        nn.Conv2d(512, 1, 4),
        nn.Flatten(),
    )


def superresolution() -> nn.Module:
    """SRCNN's kernels of 9, 1 and 5, then EDSR's pixel shuffle."""
    body = [
        Residual(nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(True), nn.Conv2d(64, 64, 3, padding=1)))
        for _ in range(4)
    ]
    return nn.Sequential(
        nn.Conv2d(3, 64, 9, padding=4),
        nn.ReLU(),
        nn.Conv2d(64, 64, 1),
        *body,
        nn.Conv2d(64, 256, 3, padding=1),
        nn.PixelShuffle(2),
        nn.Conv2d(64, 3, 5, padding=2),
    )
