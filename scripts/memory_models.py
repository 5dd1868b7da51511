"""Small and medium networks that the memory simulation is validated on: measured on CUDA, simulated anywhere.

They need torch alone. `train_step` and `infer_step` are the steps both sides run::

    recipe = MODELS["resnet_basic"]
    inputs, target = recipe.batch(4, "cuda")
    train_step(recipe.build().cuda(), optimizer, inputs, target, recipe.loss, contextlib.nullcontext, mark)
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Inputs = tuple[Any, ...]
Autocast = Callable[[], contextlib.AbstractContextManager[Any]]
Mark = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to build a model, make a batch of a given size on a device, and take its loss."""

    build: Callable[[], nn.Module]
    batch: Callable[[int, str], tuple[Inputs, Any]]
    loss: Callable[[Any, Any], Tensor]


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Inputs,
    target: Any,
    loss: Callable[[Any, Any], Tensor],
    autocast: Autocast,
    mark: Mark,
) -> None:
    """One step, with a mark behind each phase; output and loss live until it returns, gradients until its end."""
    mark("start")
    with autocast():
        out = model(*inputs)
        value = loss(out, target)
    mark("forward")
    value.backward()
    mark("backward")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    mark("optimizer")


def infer_step(model: nn.Module, inputs: Inputs, autocast: Autocast, mark: Mark) -> None:
    """One forward pass under no_grad; the output lives until the last mark."""
    mark("start")
    with torch.no_grad(), autocast():
        out = model(*inputs)
    mark("forward")
    del out


class Plan(nn.Module):
    """Modules and a function of them: forward calls the function with this module and the inputs."""

    def __init__(self, run: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *inputs: Any) -> Any:
        """What the function returns."""
        return self.run(self, *inputs)


class Residual(nn.Module):
    """x + inner(x), with a projection of x where its shape changes, and an activation behind."""

    def __init__(self, inner: nn.Module, shortcut: nn.Module | None = None, after: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.shortcut = shortcut or nn.Identity()
        self.after = after or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
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
        """What the function returns."""
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
    """Convolution, batch normalisation, activation."""
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
    """A wide residual network on small images, normalised before it convolves."""

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
        """Scores of two classes at every place."""
        kept = []
        for i, block in enumerate(self.down):
            x = block(x)
            if i < len(self.down) - 1:
                kept.append(x)
                x = self.pool(x)
        for up, block in zip(self.up, self.decode, strict=True):
            x = block(torch.cat([up(x), kept.pop()], 1))
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


class Block(nn.Module):
    """A pre-norm transformer block on scaled_dot_product_attention."""

    def __init__(self, width: int, heads: int, *, causal: bool = False, dropout: float = 0.0, ratio: int = 4) -> None:
        super().__init__()
        self.heads, self.causal, self.p = heads, causal, dropout
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, ratio * width), nn.GELU(), nn.Linear(ratio * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Attention and a perceptron, each added."""
        b, t, w = x.shape
        q, k, v = self.qkv(self.before(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0, is_causal=self.causal)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(b, t, w)), self.p, self.training)
        out: Tensor = x + self.mlp(self.between(x))
        return out


class Vision(nn.Module):
    """A vision transformer with a class token."""

    def __init__(self, image: int, patch: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of 1000 classes."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        out: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return out


class Language(nn.Module):
    """A decoder of tokens with learnt positions and a tied head."""

    def __init__(
        self, vocabulary: int, width: int, depth: int, heads: int, *, causal: bool = True, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        self.blocks = nn.ModuleList([Block(width, heads, causal=causal, dropout=dropout) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the vocabulary at every place."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(self.norm(x))
        return out


class LlamaBlock(nn.Module):
    """Root-mean-square norms, rotary positions, grouped queries, gated perceptron."""

    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.d = heads, kv_heads, width // heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * kv_heads * self.d, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = (
            nn.Linear(width, hidden, bias=False),
            nn.Linear(width, hidden, bias=False),
            nn.Linear(hidden, width, bias=False),
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attention and the gated perceptron, each added."""

        def turned(t: Tensor) -> Tensor:
            a, b = t.chunk(2, -1)
            return t * cos + torch.cat([-b, a], -1) * sin

        b, t, w = x.shape
        y = self.before(x)
        q = turned(self.q(y).view(b, t, self.heads, self.d).transpose(1, 2))
        k, v = self.kv(y).view(b, t, 2, self.kv_heads, self.d).permute(2, 0, 3, 1, 4).unbind(0)
        k = turned(k)
        k, v = (z.repeat_interleave(self.heads // self.kv_heads, 1) for z in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, w))
        y = self.between(x)
        out: Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return out


class Llama(nn.Module):
    """A small Llama (Touvron et al., 2023)."""

    def __init__(self, vocabulary: int = 8000, width: int = 256, depth: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([LlamaBlock(width, 8, 2, 688) for _ in range(depth)])
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the vocabulary at every place."""
        x = self.tokens(tokens)
        angles = torch.outer(
            torch.arange(tokens.shape[1], device=x.device), 10000 ** (-torch.arange(0, 32, 2, device=x.device) / 32)
        )
        cos, sin = (f(torch.cat([angles, angles], -1)).to(x.dtype) for f in (torch.cos, torch.sin))
        for block in self.blocks:
            x = block(x, cos, sin)
        out: Tensor = self.head(self.norm(x))
        return out


def mixer() -> nn.Module:
    """MLP-Mixer (Tolstikhin et al., 2021)."""

    def perceptron(i: int, hidden: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(i, hidden), nn.GELU(), nn.Linear(hidden, i))

    def layer(tokens: int, width: int) -> nn.Sequential:
        across = nn.Sequential(
            nn.LayerNorm(width),
            Apply(lambda x: x.transpose(1, 2)),
            perceptron(tokens, 128),
            Apply(lambda x: x.transpose(1, 2)),
        )
        return nn.Sequential(Residual(across), Residual(nn.Sequential(nn.LayerNorm(width), perceptron(width, 1024))))

    return nn.Sequential(
        nn.Conv2d(3, 256, 16, 16), Apply(lambda x: x.flatten(2).transpose(1, 2)), *(layer(64, 256) for _ in range(4)),
        nn.LayerNorm(256), Apply(lambda x: x.mean(1)), nn.Linear(256, 1000),
    )  # fmt: skip


def convmixer() -> nn.Module:
    """ConvMixer (Trockman and Kolter, 2022): depthwise kernels of 9."""

    def layer(w: int) -> nn.Sequential:
        mix = Residual(nn.Sequential(nn.Conv2d(w, w, 9, groups=w, padding="same"), nn.GELU(), nn.BatchNorm2d(w)))
        return nn.Sequential(mix, nn.Conv2d(w, w, 1), nn.GELU(), nn.BatchNorm2d(w))

    return nn.Sequential(
        nn.Conv2d(3, 256, 7, 7), nn.GELU(), nn.BatchNorm2d(256), *(layer(256) for _ in range(4)), *head(256, 100)
    )


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
    """DenseNet's block: every layer sees all before it."""

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
        """All of them side by side."""
        kept = [x]
        for layer in self.layers:
            kept.append(layer(torch.cat(kept, 1)))
        return torch.cat(kept, 1)


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
    """Several modules of the same input, side by side along the channels."""

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


def audio_m5() -> nn.Module:
    """M5 on raw audio (Dai et al., 2016)."""
    layers = [
        unit(1, 64, 80, 16, dims=1),
        nn.MaxPool1d(4),
        unit(64, 64, 3, dims=1),
        nn.MaxPool1d(4),
        unit(64, 128, 3, dims=1),
        nn.MaxPool1d(4),
        unit(128, 256, 3, dims=1),
    ]
    return nn.Sequential(*layers, *head(256, 35, 1))


def temporal() -> nn.Module:
    """A temporal convolutional network: dilations 1 to 32 (Bai et al., 2018)."""

    def block(i: int, o: int, d: int) -> Residual:
        inner = nn.Sequential(
            nn.Conv1d(i, o, 3, padding=d, dilation=d),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Conv1d(o, o, 3, padding=d, dilation=d),
            nn.ReLU(),
            nn.Dropout(0.2),
        )
        return Residual(inner, nn.Conv1d(i, o, 1) if i != o else None, nn.ReLU())

    return nn.Sequential(block(8, 64, 1), *(block(64, 64, 2**i) for i in range(1, 6)), nn.Conv1d(64, 10, 1))


class Wavenet(nn.Module):
    """WaveNet's gated dilated layers (van den Oord et al., 2016)."""

    def __init__(self, width: int = 64, layers: int = 8) -> None:
        super().__init__()
        self.start = nn.Conv1d(1, width, 1)
        self.gated = nn.ModuleList([nn.Conv1d(width, 2 * width, 3, padding=2**i, dilation=2**i) for i in range(layers)])
        self.mixed = nn.ModuleList([nn.Conv1d(width, 2 * width, 1) for _ in range(layers)])
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 256, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of 256 levels at every sample."""
        x = self.start(x)
        total: Any = 0
        for gate, mix in zip(self.gated, self.mixed, strict=True):
            a, b = gate(x).chunk(2, 1)
            more, skip = mix(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, total = x + more, total + skip
        out: Tensor = self.end(total)
        return out


def wav2vec() -> nn.Module:
    """wav2vec 2.0's stem of seven convolutions, grouped position convolution, and two blocks (Baevski et al., 2020)."""
    rows = ((1, 10, 5), (256, 3, 2), (256, 3, 2), (256, 3, 2), (256, 3, 2), (256, 2, 2), (256, 2, 2))
    stem = [
        nn.Sequential(nn.Conv1d(i, 256, k, s, bias=False), *([nn.GroupNorm(256, 256)] if i == 1 else []), nn.GELU())
        for i, k, s in rows
    ]
    place = Residual(
        nn.Sequential(nn.Conv1d(256, 256, 64, padding=32, groups=16), Apply(lambda x: x[:, :, :-1]), nn.GELU())
    )
    return nn.Sequential(
        *stem,
        place,
        Apply(lambda x: x.transpose(1, 2)),
        Block(256, 4, dropout=0.1),
        Block(256, 4, dropout=0.1),
        nn.Linear(256, 32),
    )


def vocoder() -> nn.Module:
    """HiFi-GAN's generator (Kong et al., 2020): transposed convolutions of 16 and 4, dilated blocks."""

    def block(w: int) -> nn.Sequential:
        return nn.Sequential(
            *(
                Residual(nn.Sequential(nn.LeakyReLU(0.1), nn.Conv1d(w, w, k, padding=d * (k - 1) // 2, dilation=d)))
                for k, d in ((3, 1), (7, 3), (11, 5))
            )
        )

    def up(w: int, k: int, s: int) -> nn.Sequential:
        return nn.Sequential(nn.LeakyReLU(0.1), nn.ConvTranspose1d(w, w // 2, k, s, (k - s) // 2), block(w // 2))

    return nn.Sequential(
        nn.Conv1d(80, 256, 7, padding=3),
        up(256, 16, 8),
        up(128, 16, 8),
        up(64, 4, 2),
        up(32, 4, 2),
        nn.LeakyReLU(),
        nn.Conv1d(16, 1, 7, padding=3),
        nn.Tanh(),
    )


def speech() -> nn.Module:
    """Deep Speech 2's shape (Amodei et al., 2015): two tall convolutions, then bidirectional GRUs."""
    convs = [
        nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)),
        nn.BatchNorm2d(32),
        nn.Hardtanh(0, 20),
        nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)),
        nn.BatchNorm2d(32),
        nn.Hardtanh(0, 20),
    ]
    flat = Apply(lambda x: x.flatten(1, 2).permute(2, 0, 1))
    return nn.Sequential(*convs, flat, First(nn.GRU(32 * 20, 256, 2, bidirectional=True)), nn.Linear(512, 29))


def crnn() -> nn.Module:
    """Convolutions and a bidirectional LSTM that read a line of text (Shi et al., 2015)."""
    convs = [
        unit(1, 32, 3),
        nn.MaxPool2d(2),
        unit(32, 64, 3),
        nn.MaxPool2d(2),
        unit(64, 128, 3),
        nn.MaxPool2d((2, 1)),
        unit(128, 128, 3),
        nn.MaxPool2d((4, 1)),
    ]
    return nn.Sequential(
        *convs,
        Apply(lambda x: x.squeeze(2).transpose(1, 2)),
        First(nn.LSTM(128, 128, 2, bidirectional=True, batch_first=True)),
        nn.Linear(256, 80),
    )


def audio_gru() -> nn.Module:
    """One-dimensional convolutions and a GRU over a spectrogram."""
    return nn.Sequential(
        unit(64, 128, 5, dims=1),
        unit(128, 128, 5, 2, dims=1),
        Apply(lambda x: x.transpose(1, 2)),
        First(nn.GRU(128, 256, 2, batch_first=True, dropout=0.1)),
        Apply(lambda x: x[:, -1]),
        nn.Linear(256, 10),
    )


def lstm_language() -> nn.Module:
    """A language model on two LSTM layers."""
    return nn.Sequential(
        nn.Embedding(10000, 256),
        nn.Dropout(0.2),
        First(nn.LSTM(256, 512, 2, dropout=0.2, batch_first=True)),
        nn.Linear(512, 10000),
    )


def projected() -> nn.Module:
    """An LSTM whose states are projected."""
    return nn.Sequential(
        nn.Linear(40, 128), First(nn.LSTM(128, 512, 2, proj_size=128, batch_first=True)), nn.Linear(128, 50)
    )


def tanh_rnn() -> nn.Module:
    """A plain recurrent network."""
    return nn.Sequential(
        nn.Embedding(5000, 128),
        First(nn.RNN(128, 256, 2, batch_first=True)),
        Apply(lambda x: x[:, -1]),
        nn.Linear(256, 5),
    )


class Packed(nn.Module):
    """A classifier of sentences of different lengths, packed."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.tokens = nn.Embedding(8000, 128, padding_idx=0)
        self.reader = getattr(nn, kind)(128, 192, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.head = nn.Linear(384, 4)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Scores of four classes."""
        both = nn.utils.rnn.pack_padded_sequence(self.tokens(tokens), lengths, batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.reader(both)[0], batch_first=True)
        scores: Tensor = self.head(out.mean(1))
        return scores


class Cells(nn.Module):
    """A cell called step by step, as decoders do."""

    def __init__(self, kind: str, width: int = 128, hidden: int = 256) -> None:
        super().__init__()
        self.cell = getattr(nn, kind)(width, hidden)
        self.pair = kind == "LSTMCell"
        self.head = nn.Linear(hidden, 20)

    def forward(self, x: Tensor) -> Tensor:
        """Scores at every step."""
        state: Any = None
        outs = []
        for one in x.unbind(1):
            state = self.cell(one, state)
            outs.append(self.head(state[0] if self.pair else state))
        return torch.stack(outs, 1)


class Translator(nn.Module):
    """GRU encoder and decoder with additive attention (Bahdanau et al., 2014)."""

    def __init__(self, vocabulary: int = 6000, width: int = 128, hidden: int = 256) -> None:
        super().__init__()
        self.source, self.aim = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.encoder = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.decoder = nn.GRUCell(width + 2 * hidden, hidden)
        self.key, self.query, self.score = (
            nn.Linear(2 * hidden, hidden),
            nn.Linear(hidden, hidden),
            nn.Linear(hidden, 1),
        )
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, source: Tensor, aim: Tensor) -> Tensor:
        """Scores of the vocabulary at every place of the aim."""
        memory, last = self.encoder(self.source(source))
        keys, state, outs = self.key(memory), last[0], []
        for one in self.aim(aim).unbind(1):
            weights = torch.softmax(self.score(torch.tanh(keys + self.query(state).unsqueeze(1))), 1)
            state = self.decoder(torch.cat([one, (weights * memory).sum(1)], -1), state)
            outs.append(state)
        out: Tensor = self.head(torch.stack(outs, 1))
        return out


class Seq2Seq(nn.Module):
    """nn.Transformer between two embeddings."""

    def __init__(self, vocabulary: int = 6000, width: int = 192) -> None:
        super().__init__()
        self.source, self.aim = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.inner = nn.Transformer(width, 6, 2, 2, 768, 0.1, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source: Tensor, aim: Tensor) -> Tensor:
        """Scores of the vocabulary at every place of the aim."""
        mask = torch.triu(torch.full((aim.shape[1], aim.shape[1]), float("-inf"), device=aim.device), 1)
        out: Tensor = self.head(self.inner(self.source(source), self.aim(aim), tgt_mask=mask))
        return out


def encoder() -> nn.Module:
    """BERT's shape on nn.TransformerEncoder."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, 0.1, activation="gelu", batch_first=True)
    return nn.Sequential(
        nn.Embedding(8000, 256),
        nn.LayerNorm(256),
        nn.Dropout(0.1),
        nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
        nn.Linear(256, 8000),
    )


class Perceiver(nn.Module):
    """Latents that read a long input by cross attention."""

    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.zeros(1, 32, width))
        self.cross = nn.MultiheadAttention(width, 6, dropout=0.1, batch_first=True)
        self.blocks = nn.Sequential(Block(width, 6), Block(width, 6))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of ten classes."""
        y, _ = self.cross(self.latents.expand(x.shape[0], -1, -1), x, x)
        out: Tensor = self.head(self.blocks(y).mean(1))
        return out


class Variational(nn.Module):
    """A variational autoencoder of flat images (Kingma and Welling, 2013)."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 64))
        self.decode = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 784), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        """The image again."""
        mean, scale = self.encode(x).chunk(2, -1)
        out: Tensor = self.decode(mean + torch.randn_like(scale) * torch.exp(0.5 * scale))
        return out


class Graph(nn.Module):
    """Message passing by index_add over a fixed list of edges."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.start = nn.Linear(16, width)
        self.layers = nn.ModuleList(
            [nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(3)]
        )
        self.head = nn.Linear(width, 7)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Scores of seven classes at every node."""
        x = self.start(x)
        for layer in self.layers:
            message = layer(torch.cat([x[edges[0]], x[edges[1]]], -1))
            x = x + torch.zeros_like(x).index_add(0, edges[1], message.to(x.dtype))
        out: Tensor = self.head(x)
        return out


class Recommender(nn.Module):
    """Bags of embeddings and a perceptron, as DLRM has them (Naumov et al., 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(n, 32, mode="sum") for n in (20000, 5000, 1000, 50)])
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(32 + 10, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, dense: Tensor, *sparse: Tensor) -> Tensor:
        """One score a sample."""
        x = self.bottom(dense)
        rows = torch.stack([x, *(bag(s) for bag, s in zip(self.bags, sparse, strict=True))], 1)
        pairs = torch.bmm(rows, rows.transpose(1, 2))
        at = torch.triu_indices(5, 5, 1, device=x.device)
        out: Tensor = self.top(torch.cat([x, pairs[:, at[0], at[1]]], 1))
        return out


class ConvLSTM(nn.Module):
    """A convolutional LSTM over frames (Shi et al., 2015)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.gates = nn.Conv2d(3 + width, 4 * width, 5, padding=2)
        self.head = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The next frame."""
        h = c = x.new_zeros(x.shape[0], self.width, *x.shape[-2:])
        for frame in x.unbind(1):
            i, f, o, g = self.gates(torch.cat([frame, h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        out: Tensor = self.head(h)
        return out


class Checkpointed(nn.Module):
    """Transformer blocks whose activations are computed again in backward."""

    def __init__(self, width: int = 256, depth: int = 6) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, 4, dropout=0.1) for _ in range(depth)])
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of ten classes."""
        from torch.utils.checkpoint import checkpoint

        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        out: Tensor = self.head(x.mean(1))
        return out


def perceptron() -> nn.Module:
    """Linear layers."""
    return nn.Sequential(
        nn.Linear(1024, 2048),
        nn.ReLU(),
        nn.BatchNorm1d(2048),
        nn.Linear(2048, 2048),
        nn.Tanh(),
        nn.Dropout(0.2),
        nn.Linear(2048, 1000),
    )


def autoencoder() -> nn.Module:
    """Strided convolutions down, transposed ones up, kernels of 5."""
    down = [
        nn.Conv2d(3, 32, 5, 2, 2),
        nn.PReLU(32),
        nn.Conv2d(32, 64, 5, 2, 2),
        nn.InstanceNorm2d(64, affine=True),
        nn.LeakyReLU(0.1),
        nn.Conv2d(64, 96, 5, 2, 2),
        nn.ELU(),
    ]
    up = [
        nn.ConvTranspose2d(96, 64, 5, 2, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 5, 2, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 3, 5, 2, 2, 1),
    ]
    return nn.Sequential(*down, *up)


def dilated_bottle() -> nn.Module:
    """Half-width 3x3 layers of dilation 2 and 4, channels off the alignment."""
    return nn.Sequential(
        unit(3, 30, 5),
        unit(30, 50, 3, 2),
        unit(50, 50, 3, d=2),
        unit(50, 70, 3, d=4),
        nn.Dropout2d(0.1),
        unit(70, 33, 1),
        *head(33, 11),
    )


def classes_of(out: Tensor, target: Tensor) -> Tensor:
    """Cross entropy over classes in dimension 1."""
    return F.cross_entropy(out, target)


def tokens_of(out: Tensor, target: Tensor) -> Tensor:
    """Cross entropy over classes in the last dimension."""
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1))


def squares_of(out: Tensor, target: Tensor) -> Tensor:
    """Mean squared error."""
    return F.mse_loss(out, target)


def logits_of(out: Tensor, target: Tensor) -> Tensor:
    """Binary cross entropy of logits."""
    return F.binary_cross_entropy_with_logits(out, target)


def image(shape: Sequence[int], classes: int, *places: int) -> Callable[[int, str], tuple[Inputs, Tensor]]:
    """A tensor a sample, and a class a sample or a place."""
    return lambda b, d: ((torch.randn(b, *shape, device=d),), torch.randint(0, classes, (b, *places), device=d))


def pair(shape: Sequence[int], aim: Sequence[int]) -> Callable[[int, str], tuple[Inputs, Tensor]]:
    """A tensor a sample, and a tensor to meet."""
    return lambda b, d: ((torch.randn(b, *shape, device=d),), torch.rand(b, *aim, device=d))


def text(
    length: int, vocabulary: int, classes: int = 0, *, inputs: int = 1
) -> Callable[[int, str], tuple[Inputs, Tensor]]:
    """Token sequences, and a class a sample or (0) a token a place."""

    def make(b: int, d: str) -> tuple[Inputs, Tensor]:
        given = tuple(torch.randint(1, vocabulary, (b, length), device=d) for _ in range(inputs))
        return given, torch.randint(0, classes, (b,), device=d) if classes else torch.randint(
            0, vocabulary, (b, length), device=d
        )

    return make


def sentences(b: int, d: str) -> tuple[Inputs, Tensor]:
    """Token sequences of falling length, the lengths on the host as packing wants them."""
    lengths = torch.tensor([max(4, 48 - 40 * i // b) for i in range(b)])
    return (torch.randint(1, 8000, (b, 48), device=d), lengths), torch.randint(0, 4, (b,), device=d)


def graph(b: int, d: str) -> tuple[Inputs, Tensor]:
    """Nodes and edges of `b` small graphs."""
    return (torch.randn(200 * b, 16, device=d), torch.randint(0, 200 * b, (2, 1000 * b), device=d)), torch.randint(
        0, 7, (200 * b,), device=d
    )


def clicks(b: int, d: str) -> tuple[Inputs, Tensor]:
    """Dense features and four bags of ten indices, 32 samples to each of the batch."""
    n = 32 * b
    return (
        torch.randn(n, 13, device=d),
        *(torch.randint(0, m, (n, 10), device=d) for m in (20000, 5000, 1000, 50)),
    ), torch.rand(n, 1, device=d)


MODELS: Final[dict[str, Recipe]] = {
    "resnet_basic": Recipe(resnet_basic, image((3, 160, 160), 1000), classes_of),
    "large_kernels": Recipe(large_kernels, image((3, 64, 64), 10), classes_of),
    "unet": Recipe(lambda: UNet(24, 3, 3), image((3, 128, 128), 2, 128, 128), classes_of),
    "language": Recipe(lambda: Language(12000, 256, 4, 4), text(256, 12000), tokens_of),
    "audio_m5": Recipe(audio_m5, image((1, 16000), 35), classes_of),
    "lstm_language": Recipe(lstm_language, text(64, 10000), tokens_of),
    "unet_3d": Recipe(lambda: UNet(16, 2, 1, dims=3), image((1, 32, 32, 32), 2, 32, 32, 32), classes_of),
    "vision": Recipe(lambda: Vision(128, 16, 192, 6, 3), image((3, 128, 128), 1000), classes_of),
    "mobilenet": Recipe(mobilenet, image((3, 160, 160), 1000), classes_of),
    "audio_gru": Recipe(audio_gru, image((64, 200), 10), classes_of),
    "generator": Recipe(generator, pair((100, 1, 1), (3, 64, 64)), squares_of),
    "deeplab": Recipe(deeplab, image((3, 160, 160), 21, 160, 160), classes_of),
    "vocoder": Recipe(vocoder, pair((80, 32), (1, 8192)), squares_of),
    "packed_lstm": Recipe(lambda: Packed("LSTM"), sentences, classes_of),
    "lstm_cells": Recipe(lambda: Cells("LSTMCell"), image((24, 128), 20, 24), tokens_of),
    "wav2vec": Recipe(wav2vec, image((1, 16000), 32, 49), tokens_of),
    "c3d": Recipe(c3d, image((3, 16, 56, 56), 101), classes_of),
    "vgg_norm": Recipe(vgg, image((3, 128, 128), 100), classes_of),
    "speech": Recipe(speech, image((1, 80, 160), 29, 80), lambda o, t: tokens_of(o.transpose(0, 1), t)),
    "convnext": Recipe(convnext, image((3, 160, 160), 1000), classes_of),
    "replk": Recipe(replk, image((3, 128, 128), 100), classes_of),
    "resnext": Recipe(lambda: resnet_bottleneck(32, 2), image((3, 128, 128), 1000), classes_of),
    "superresolution": Recipe(superresolution, pair((3, 64, 64), (3, 128, 128)), squares_of),
    "wavenet": Recipe(Wavenet, image((1, 4000), 256, 4000), classes_of),
    "alexnet": Recipe(alexnet, image((3, 224, 224), 1000), classes_of),
    "llama": Recipe(Llama, text(256, 8000), tokens_of),
    "crnn": Recipe(crnn, image((1, 32, 160), 80, 40), tokens_of),
    "factored": Recipe(factored, image((3, 8, 64, 64), 101), classes_of),
    "inverted": Recipe(inverted, image((3, 160, 160), 1000), classes_of),
    "large_kernels_11": Recipe(lambda: large_kernels(11), image((3, 96, 96), 10), classes_of),
    "temporal": Recipe(temporal, image((8, 2000), 10, 2000), classes_of),
    "packed_gru": Recipe(lambda: Packed("GRU"), sentences, classes_of),
    "gru_cells": Recipe(lambda: Cells("GRUCell"), image((24, 128), 20, 24), tokens_of),
    "resnet_bottleneck": Recipe(resnet_bottleneck, image((3, 128, 128), 1000), classes_of),
    "resnet_3d": Recipe(resnet_3d, image((1, 48, 48, 48), 10), classes_of),
    "vgg_plain": Recipe(lambda: vgg(norm=False), image((3, 96, 96), 100), classes_of),
    "discriminator": Recipe(discriminator, pair((3, 64, 64), (1,)), logits_of),
    "autoencoder": Recipe(autoencoder, pair((3, 96, 96), (3, 96, 96)), squares_of),
    "densenet": Recipe(densenet, image((3, 128, 128), 1000), classes_of),
    "inception": Recipe(inception, image((3, 128, 128), 1000), classes_of),
    "encoder": Recipe(encoder, text(128, 8000), tokens_of),
    "seq2seq": Recipe(Seq2Seq, text(48, 6000, inputs=2), tokens_of),
    "translator": Recipe(Translator, text(24, 6000, inputs=2), tokens_of),
    "projected": Recipe(projected, image((100, 40), 50, 100), tokens_of),
    "tanh_rnn": Recipe(tanh_rnn, text(80, 5000, 5), classes_of),
    "conv_lstm": Recipe(ConvLSTM, pair((6, 3, 48, 48), (3, 48, 48)), squares_of),
    "dilated": Recipe(dilated_bottle, image((3, 96, 96), 11), classes_of),
    "convmixer": Recipe(convmixer, image((3, 112, 112), 100), classes_of),
    "mixer": Recipe(mixer, image((3, 128, 128), 1000), classes_of),
    "squeezenet": Recipe(squeezenet, image((3, 160, 160), 1000), classes_of),
    "shufflenet": Recipe(shufflenet, image((3, 160, 160), 1000), classes_of),
    "resnet_cifar": Recipe(resnet_cifar, image((3, 32, 32), 10), classes_of),
    "unet_resized": Recipe(
        lambda: UNet(16, 3, 3, resized=True, groups=True), image((3, 96, 96), 2, 96, 96), classes_of
    ),
    "checkpointed": Recipe(Checkpointed, image((128, 256), 10), classes_of),
    "perceiver": Recipe(Perceiver, image((1000, 192), 10), classes_of),
    "graph": Recipe(Graph, graph, classes_of),
    "recommender": Recipe(Recommender, clicks, logits_of),
    "variational": Recipe(Variational, pair((784,), (784,)), squares_of),
    "perceptron": Recipe(perceptron, image((1024,), 1000), classes_of),
    "lenet": Recipe(lenet, image((1, 28, 28), 10), classes_of),
}

OPTIMIZERS: Final[dict[str, Callable[..., torch.optim.Optimizer]]] = {
    "sgd": lambda parameters, **more: torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, **more),
    "adamw": lambda parameters, **more: torch.optim.AdamW(parameters, lr=1e-5, **more),
}


def parameters_of(name: str) -> int:
    """How many parameters a model has, without making them."""
    with torch.device("meta"):
        return sum(math.prod(p.shape) for p in MODELS[name].build().parameters())
