"""Image networks: residual, plain, U-shaped and three-dimensional."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Plan(nn.Module):
    """A module with a custom forward: it calls `run` with itself and the inputs."""

    def __init__(self, run: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *inputs: Any) -> Any:
        """Call the function."""
        return self.run(self, *inputs)


class Residual(nn.Module):
    """x + inner(x), with a projection of x if its shape changes, and an activation after the sum."""

    def __init__(self, inner: nn.Module, shortcut: nn.Module | None = None, after: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.shortcut = shortcut or nn.Identity()
        self.after = after or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Add both branches and apply the activation."""
        out: Tensor = self.after(self.inner(x) + self.shortcut(x))
        return out


class First(nn.Module):
    """The first output of a recurrent module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """The sequence of outputs."""
        out: Tensor = self.inner(x)[0]
        return out


class Apply(nn.Module):
    """A function of one tensor as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Call the function."""
        return self.function(x)


def unit(
    i: int,
    o: int,
    k: int | Sequence[int],
    s: int = 1,
    g: int = 1,
    d: int = 1,
    *,
    act: nn.Module | None = None,
    dims: int = 2,
) -> nn.Sequential:
    """Convolution, batch normalization, activation."""
    kernel = (k,) * dims if isinstance(k, int) else tuple(k)
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[dims - 1]
    padding = tuple(d * (n - 1) // 2 for n in kernel)
    return nn.Sequential(conv(i, o, kernel, s, padding, d, g, bias=False), norm(o), act or nn.ReLU(inplace=True))  # type: ignore[arg-type]


def bare(layer: nn.Sequential) -> list[nn.Module]:
    """A unit's convolution and norm, without its activation."""
    return list(layer)[:2]


def head(width: int, classes: int, dims: int = 2) -> list[nn.Module]:
    """Average over space, then one linear layer."""
    pool = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[dims - 1]
    return [pool(1), nn.Flatten(), nn.Linear(width, classes)]


def basic(i: int, o: int, s: int = 1, *, dims: int = 2) -> Residual:
    """ResNet's basic block."""
    inner = nn.Sequential(unit(i, o, 3, s, dims=dims), *bare(unit(o, o, 3, dims=dims)))
    shortcut = nn.Sequential(*bare(unit(i, o, 1, s, dims=dims))) if s > 1 or i != o else None
    return Residual(inner, shortcut, nn.ReLU(inplace=True))


def bottleneck(i: int, o: int, s: int = 1, g: int = 1, wide: int = 1) -> Residual:
    """ResNet's bottleneck; grouped it is ResNeXt's."""
    m = o // 4 * wide
    inner = nn.Sequential(unit(i, m, 1), unit(m, m, 3, s, g), *bare(unit(m, o, 1)))
    shortcut = nn.Sequential(*bare(unit(i, o, 1, s))) if s > 1 or i != o else None
    return Residual(inner, shortcut, nn.ReLU(inplace=True))


def resnet_basic() -> nn.Module:
    """ResNet-18 (He et al., 2015)."""
    blocks = [basic(64, 64), basic(64, 64)]
    for i, o in ((64, 128), (128, 256), (256, 512)):
        blocks += [basic(i, o, 2), basic(o, o)]
    return nn.Sequential(unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), *blocks, *head(512, 1000))


def resnet_bottleneck(g: int = 1, wide: int = 1) -> nn.Module:
    """A ResNet of eight bottlenecks; with groups a ResNeXt."""
    blocks: list[nn.Module] = []
    i = 64
    for o, s in ((256, 1), (512, 2), (1024, 2), (2048, 2)):
        blocks += [bottleneck(i, o, s, g, wide), bottleneck(o, o, 1, g, wide)]
        i = o
    return nn.Sequential(unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), *blocks, *head(2048, 1000))


def resnet_cifar() -> nn.Module:
    """A wide residual network on small images, with normalization before each convolution."""

    def block(i: int, o: int, s: int) -> Residual:
        inner = nn.Sequential(
            nn.BatchNorm2d(i),
            nn.ReLU(),
            nn.Conv2d(i, o, 3, s, 1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Conv2d(o, o, 3, 1, 1, bias=False),
        )
        return Residual(inner, nn.Conv2d(i, o, 1, s, bias=False) if i != o else None)

    blocks = [
        block(i, o, s)
        for i, o, s in ((16, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1))
    ]
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *blocks, nn.BatchNorm2d(256), nn.ReLU(), *head(256, 10))


def vgg(*, norm: bool = True) -> nn.Module:
    """VGG-11 with a narrow head (Simonyan and Zisserman, 2014)."""
    layers: list[nn.Module] = []
    i = 3
    for o in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        if not o:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(i, o, 3, padding=1), *([nn.BatchNorm2d(o)] if norm else []), nn.ReLU(inplace=norm)]
        i = o
    return nn.Sequential(
        *layers,
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512 * 16, 1024),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(1024, 100),
    )


def alexnet() -> nn.Module:
    """AlexNet (Krizhevsky et al., 2012), its kernels of 11 and 5."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, 4, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(256 * 36, 2048),
        nn.ReLU(inplace=True),
        nn.Linear(2048, 1000),
    )


def lenet() -> nn.Module:
    """Two convolutions and two linear layers for digits."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )


class UNet(nn.Module):
    """A U-Net (Ronneberger et al., 2015) of two or three dimensions, growing by transposed or resized convolutions."""

    def __init__(
        self, width: int, depth: int, inputs: int, *, dims: int = 2, resized: bool = False, groups: bool = False
    ) -> None:
        super().__init__()
        w = [width * 2**i for i in range(depth + 1)]

        def pair(i: int, o: int) -> nn.Sequential:
            if groups:
                conv: Any = (nn.Conv2d, nn.Conv3d)[dims - 2]
                return nn.Sequential(
                    conv(i, o, 3, padding=1),
                    nn.GroupNorm(8, o),
                    nn.SiLU(),
                    conv(o, o, 3, padding=1),
                    nn.GroupNorm(8, o),
                    nn.SiLU(),
                )
            return nn.Sequential(unit(i, o, 3, dims=dims), unit(o, o, 3, dims=dims))

        turned: Any = (nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 2]
        self.pool = (nn.MaxPool2d, nn.MaxPool3d)[dims - 2](2)
        self.down = nn.ModuleList([pair(inputs if i == 0 else w[i - 1], w[i]) for i in range(depth + 1)])
        self.up = nn.ModuleList(
            [
                nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(w[i + 1], w[i], 1))
                if resized
                else turned(w[i + 1], w[i], 2, 2)
                for i in reversed(range(depth))
            ]
        )
        self.decode = nn.ModuleList([pair(2 * w[i], w[i]) for i in reversed(range(depth))])
        self.head = (nn.Conv2d, nn.Conv3d)[dims - 2](width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of two classes at every position."""
        skips = []
        for i, block in enumerate(self.down):
            x = block(x)
            if i < len(self.down) - 1:
                skips.append(x)
                x = self.pool(x)
        for up, block in zip(self.up, self.decode, strict=True):
            x = block(torch.cat([up(x), skips.pop()], 1))
        out: Tensor = self.head(x)
        return out


def c3d() -> nn.Module:
    """C3D (Tran et al., 2014), narrow."""
    return nn.Sequential(
        nn.Conv3d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool3d((1, 2, 2)),
        nn.Conv3d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.Conv3d(64, 128, 3, padding=1),
        nn.ReLU(),
        nn.Conv3d(128, 128, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool3d(2),
        *head(128, 101, 3),
    )


def factored() -> nn.Module:
    """R(2+1)D (Tran et al., 2017): a kernel in space, then one in time."""

    def pair(i: int, o: int, s: int) -> nn.Sequential:
        m = 2 * o
        return nn.Sequential(
            nn.Conv3d(i, m, (1, 3, 3), (1, s, s), (0, 1, 1), bias=False),
            nn.BatchNorm3d(m),
            nn.ReLU(inplace=True),
            nn.Conv3d(m, o, (3, 1, 1), (s, 1, 1), (1, 0, 0), bias=False),
            nn.BatchNorm3d(o),
            nn.ReLU(inplace=True),
        )

    return nn.Sequential(
        pair(3, 32, 2), pair(32, 64, 1), Residual(pair(64, 64, 1)), pair(64, 128, 2), *head(128, 101, 3)
    )


def resnet_3d() -> nn.Module:
    """A residual network over volumes."""
    return nn.Sequential(
        unit(1, 16, 5, 2, dims=3),
        basic(16, 16, dims=3),
        basic(16, 32, 2, dims=3),
        basic(32, 64, 2, dims=3),
        *head(64, 10, 3),
    )
