"""Image networks: residual, plain, U-shaped, separable, grouped, branching, dilated and three-dimensional; generators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scripts.bench.networks.layers import Plan, Residual, apply, bare, branches, head, stack, unit


def bottleneck(i: int, o: int, s: int = 1, g: int = 1, wide: int = 1) -> Residual:
    """ResNet's bottleneck; grouped it is ResNeXt's."""
    m = o // 4 * wide
    inner = stack(f"unit {i} {m} 1; unit {m} {m} 3 {s} {g}; {bare(m, o, 1)}")
    return Residual(inner, stack(bare(i, o, 1, s)) if s > 1 or i != o else None, nn.ReLU(inplace=True))


def resnet_bottleneck(g: int = 1, wide: int = 1) -> nn.Module:
    """A ResNet of eight bottlenecks; with groups a ResNeXt (He et al., 2015)."""
    blocks = "".join(
        f"block {i} {o} {s} {g} {wide}; block {o} {o} 1 {g} {wide}; "
        for i, o, s in ((64, 256, 1), (256, 512, 2), (512, 1024, 2), (1024, 2048, 2))
    )
    return stack(f"unit 3 64 7 2; MaxPool2d 3 2 1; {blocks}{head(2048, 1000)}", block=bottleneck)


def wide_block(i: int, o: int, s: int) -> Residual:
    """A residual block with normalization before each convolution."""
    inner = stack(
        f"BatchNorm2d {i}; ReLU; Conv2d {i} {o} 3 {s} 1 bias=False; "
        f"BatchNorm2d {o}; ReLU; Dropout 0.3; Conv2d {o} {o} 3 1 1 bias=False"
    )
    return Residual(inner, nn.Conv2d(i, o, 1, s, bias=False) if i != o else None)


def vgg(*, norm: bool = True) -> nn.Module:
    """VGG-11 with a narrow head (Simonyan and Zisserman, 2014)."""
    rows, i = "", 3
    for o in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        normed = f"BatchNorm2d {o}; ReLU True; " if norm else "ReLU; "
        rows += f"Conv2d {i} {o} 3 padding=1; {normed}" if o else "MaxPool2d 2; "
        i = o or i
    return stack(f"{rows}AdaptiveAvgPool2d 4; Flatten; Linear 8192 1024; ReLU; Dropout; Linear 1024 100")


def unet(
    width: int, depth: int, inputs: int, *, dims: int = 2, resized: bool = False, groups: bool = False
) -> nn.Module:
    """A U-Net (Ronneberger et al., 2015) of two or three dimensions, growing by transposed or resized convolutions."""
    w = [width * 2**i for i in range(depth + 1)]

    def pair(i: int, o: int) -> nn.Sequential:
        if groups:
            normed = f"GroupNorm 8 {o}; SiLU"
            return stack(f"Conv2d {i} {o} 3 padding=1; {normed}; Conv2d {o} {o} 3 padding=1; {normed}")
        return stack(f"unit {i} {o} 3 dims={dims}; unit {o} {o} 3 dims={dims}")

    def up(i: int, o: int) -> nn.Module:
        if resized:
            return stack(f"Upsample scale_factor=2 mode='bilinear'; Conv2d {i} {o} 1")
        return stack(f"ConvTranspose{dims}d {i} {o} 2 2")[0]

    def run(m: Any, x: Tensor) -> Tensor:
        skips = []
        for i, block in enumerate(m.down):
            x = block(x)
            if i < depth:
                skips.append(x)
                x = m.pool(x)
        for up, block in zip(m.up, m.decode, strict=True):
            x = block(torch.cat([up(x), skips.pop()], 1))
        out: Tensor = m.head(x)
        return out

    return Plan(
        run,
        pool=stack(f"MaxPool{dims}d 2")[0],
        down=nn.ModuleList(pair(i, o) for i, o in zip([inputs, *w], w, strict=False)),
        up=nn.ModuleList(up(w[i + 1], w[i]) for i in reversed(range(depth))),
        decode=nn.ModuleList(pair(2 * w[i], w[i]) for i in reversed(range(depth))),
        head=stack(f"Conv{dims}d {width} 2 1")[0],
    )


def factored() -> nn.Module:
    """R(2+1)D (Tran et al., 2017): a kernel in space, then one in time."""

    def pair(i: int, o: int, s: int) -> nn.Sequential:
        m = 2 * o
        return stack(
            f"Conv3d {i} {m} (1,3,3) (1,{s},{s}) (0,1,1) bias=False; BatchNorm3d {m}; ReLU True; "
            f"Conv3d {m} {o} (3,1,1) ({s},1,1) (1,0,0) bias=False; BatchNorm3d {o}; ReLU True"
        )

    rows = f"pair 3 32 2; pair 32 64 1; residual; pair 64 128 2; {head(128, 101, 3)}"
    return stack(rows, pair=pair, residual=lambda: Residual(pair(64, 64, 1)))


def convnext() -> nn.Module:
    """ConvNeXt (Liu et al., 2022), small: depthwise 7x7, norms and linears over the last dimension."""

    def block(w: int) -> Residual:
        rows = f"Conv2d {w} {w} 7 padding=3 groups={w}; turned 0 2 3 1; LayerNorm {w}; "
        return Residual(stack(f"{rows}Linear {w} {4 * w}; GELU; Linear {4 * w} {w}; turned 0 3 1 2"))

    rows = "Conv2d 3 64 4 4; 2 * block 64; Conv2d 64 128 2 2; 2 * block 128; Conv2d 128 256 2 2; block 256"
    return stack(f"{rows}; {head(256, 1000)}", block=block)


def mobilenet() -> nn.Module:
    """MobileNet (Howard et al., 2017)."""
    rows = "pair 32 64 1; pair 64 128 2; pair 128 128 1; pair 128 256 2; pair 256 256 1; pair 256 512 2; pair 512 512 1"
    return stack(
        f"unit 3 32 3 2; {rows}; pair 512 1024 2; {head(1024, 1000)}",
        pair=lambda i, o, s: stack(f"unit {i} {i} 3 {s} {i}; unit {i} {o} 1"),
    )


def squeeze(w: int) -> Plan:
    """Squeeze and excitation: the input, weighted by channel."""
    rows = f"AdaptiveAvgPool2d 1; Conv2d {w} {w // 4} 1; ReLU; Conv2d {w // 4} {w} 1; Hardsigmoid"
    return Plan(lambda m, x: x * m.inner(x), inner=stack(rows))


def inverted() -> nn.Module:
    """MobileNetV3's blocks: expand, depthwise, squeeze, project."""

    def active(i: int, o: int, k: int, s: int = 1, g: int = 1) -> nn.Sequential:
        return unit(i, o, k, s, g, act="Hardswish")

    def block(i: int, o: int, k: int, s: int) -> nn.Module:
        m = 4 * i
        inner = stack(f"active {i} {m} 1; active {m} {m} {k} {s} {m}; squeeze {m}; {bare(m, o, 1)}", **own)
        return Residual(inner) if s == 1 and i == o else inner

    own: dict[str, Any] = {"active": active, "squeeze": squeeze, "block": block}
    rows = "block 16 24 3 2; block 24 24 3 1; block 24 40 5 2; block 40 40 5 1; block 40 80 3 2; block 80 80 5 1"
    return stack(f"active 3 16 3 2; {rows}; block 80 160 5 2; active 160 960 1; {head(960, 1000)}", **own)


def shufflenet() -> nn.Module:
    """ShuffleNet's grouped 1x1 layers and channel shuffle (Zhang et al., 2017)."""

    def block(w: int) -> Residual:
        rows = f"unit {w} {w} 1 g=4; ChannelShuffle 4; {bare(w, w, 3, g=w)}; {bare(w, w, 1, g=4)}"
        return Residual(stack(rows), None, nn.ReLU())

    rows = "unit 3 48 3 2; MaxPool2d 3 2 1; block 48; unit 48 96 3 2; 2 * block 96; unit 96 192 3 2; block 192"
    return stack(f"{rows}; {head(192, 1000)}", block=block)


def dense(width: int, growth: int, layers: int) -> Plan:
    """DenseNet's block: every layer reads the outputs of all earlier layers, and all are concatenated."""

    def run(m: Any, x: Tensor) -> Tensor:
        features = [x]
        for layer in m.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)

    widths = range(width, width + layers * growth, growth)
    rows = [f"BatchNorm2d {w}; ReLU; Conv2d {w} {growth} 3 padding=1 bias=False" for w in widths]
    return Plan(run, layers=nn.ModuleList(map(stack, rows)))


def densenet() -> nn.Module:
    """DenseNet (Huang et al., 2016), short."""
    rows = "unit 3 64 7 2; MaxPool2d 2; dense 64 24 6; Conv2d 208 104 1; AvgPool2d 2; dense 104 24 8; BatchNorm2d 296; ReLU"
    return stack(f"{rows}; {head(296, 1000)}", dense=dense)


def inception() -> nn.Module:
    """Inception's blocks (Szegedy et al., 2015): 1x1, 5x5, and 7x7 in two."""

    def block(i: int) -> Plan:
        rows = (
            f"unit {i} 48 1; unit 48 64 5",
            f"unit {i} 64 1; unit 64 64 (1,7); unit 64 96 (7,1)",
            f"AvgPool2d 3 1 1; unit {i} 32 1",
        )
        return branches(unit(i, 64, 1), *map(stack, rows))

    rows = "unit 3 32 3 2; unit 32 64 3; MaxPool2d 3 2; block 64; block 256; MaxPool2d 3 2; block 256"
    return stack(f"{rows}; {head(256, 1000)}", block=block)


def squeezenet() -> nn.Module:
    """SqueezeNet's fire modules (Iandola et al., 2016)."""

    def fire(i: int, s: int, e: int) -> nn.Sequential:
        both = branches(*stack(f"Conv2d {s} {e} 1; Conv2d {s} {e} 3 padding=1"))
        return stack(f"Conv2d {i} {s} 1; ReLU True; both; ReLU True", both=lambda: both)

    rows = "Conv2d 3 64 3 2; ReLU True; MaxPool2d 3 2; fire 64 16 64; fire 128 16 64; MaxPool2d 3 2; fire 128 32 128"
    return stack(f"{rows}; fire 256 48 192; Dropout; Conv2d 384 1000 1; AdaptiveAvgPool2d 1; Flatten", fire=fire)


def large_kernels(k: int = 15) -> nn.Module:
    """Dense convolutions of large kernels."""
    p = k // 2
    rows = f"Conv2d 3 24 {k} padding={p}; ReLU; Conv2d 24 40 {k} padding={p}; ReLU; MaxPool2d 2"
    return stack(f"{rows}; Conv2d 40 32 {k - 4} padding={p - 2}; ReLU; {head(32, 10)}")


def replk() -> nn.Module:
    """RepLKNet's blocks (Ding et al., 2022): depthwise kernels of 31 and 13."""
    rows = f"unit 3 32 3 2; unit 32 32 3 2; block 32 31; unit 32 64 3 2; block 64 13; {head(64, 100)}"
    return stack(rows, block=lambda w, k: Residual(stack(f"unit {w} {w} 1; unit {w} {w} {k} 1 {w}; {bare(w, w, 1)}")))


def deeplab() -> nn.Module:
    """Atrous pyramid of dilations 6, 12 and 18 (Chen et al., 2017), resized to the input."""
    rows = (
        "unit 3 64 7 2; MaxPool2d 3 2 1; basic 64 128 2; unit 128 256 3 d=2; unit 256 256 3 d=4; pyramid; unit 256 64 1"
    )
    return stack(
        f"{rows}; Dropout 0.5; Conv2d 64 21 1; Upsample scale_factor=8 mode='bilinear'",
        pyramid=lambda: branches(unit(256, 64, 1), *(unit(256, 64, 3, d=d) for d in (6, 12, 18))),
    )


def generator() -> nn.Module:
    """DCGAN's generator (Radford et al., 2015)."""

    def up(i: int, o: int, s: int = 2, p: int = 1) -> nn.Sequential:
        return stack(f"ConvTranspose2d {i} {o} 4 {s} {p} bias=False; BatchNorm2d {o}; ReLU True")

    return stack("up 100 512 1 0; up 512 256; up 256 128; up 128 64; ConvTranspose2d 64 3 4 2 1; Tanh", up=up)


def discriminator() -> nn.Module:
    """DCGAN's discriminator."""
    leaky = "LeakyReLU 0.2 inplace=True"
    return stack(
        f"Conv2d 3 64 4 2 1; {leaky}; down 64 128; down 128 256; down 256 512; Conv2d 512 1 4; Flatten",
        down=lambda i, o: stack(f"Conv2d {i} {o} 4 2 1 bias=False; BatchNorm2d {o}; {leaky}"),
    )


def superresolution() -> nn.Module:
    """SRCNN's kernels of 9, 1 and 5, then EDSR's pixel shuffle."""
    rows = "Conv2d 3 64 9 padding=4; ReLU; Conv2d 64 64 1; 4 * body; Conv2d 64 256 3 padding=1; PixelShuffle 2"
    return stack(
        f"{rows}; Conv2d 64 3 5 padding=2",
        body=lambda: Residual(stack("Conv2d 64 64 3 padding=1; ReLU True; Conv2d 64 64 3 padding=1")),
    )


def mixer() -> nn.Module:
    """MLP-Mixer (Tolstikhin et al., 2021)."""

    def perceptron(i: int, hidden: int) -> nn.Sequential:
        return stack(f"Linear {i} {hidden}; GELU; Linear {hidden} {i}")

    def layer(tokens: int, width: int) -> nn.Sequential:
        rows = (
            f"LayerNorm {width}; turned 0 2 1; perceptron {tokens} 128; turned 0 2 1",
            f"LayerNorm {width}; perceptron {width} 1024",
        )
        return nn.Sequential(*(Residual(stack(row, perceptron=perceptron)) for row in rows))

    return stack(
        "Conv2d 3 256 16 16; flat; 4 * layer 64 256; LayerNorm 256; mean; Linear 256 1000",
        layer=layer,
        flat=lambda: apply(lambda x: x.flatten(2).transpose(1, 2)),
        mean=lambda: apply(lambda x: x.mean(1)),
    )


def convmixer() -> nn.Module:
    """ConvMixer (Trockman and Kolter, 2022): depthwise kernels of 9."""

    def layer(w: int) -> nn.Sequential:
        mix = Residual(stack(f"Conv2d {w} {w} 9 groups={w} padding='same'; GELU; BatchNorm2d {w}"))
        return stack(f"mix; Conv2d {w} {w} 1; GELU; BatchNorm2d {w}", mix=lambda: mix)

    return stack(f"Conv2d 3 256 7 7; GELU; BatchNorm2d 256; 4 * layer 256; {head(256, 100)}", layer=layer)


ROWS = {
    "resnet_basic": "unit 3 64 7 2; MaxPool2d 3 2 1; 2 * basic 64 64; basic 64 128 2; basic 128 128; basic 128 256 2; "
    f"basic 256 256; basic 256 512 2; basic 512 512; {head(512, 1000)}",
    "resnet_cifar": "Conv2d 3 16 3 padding=1; block 16 64 1; block 64 64 1; block 64 128 2; block 128 128 1; block 128 256 2; "
    f"block 256 256 1; BatchNorm2d 256; ReLU; {head(256, 10)}",
    "alexnet": "Conv2d 3 64 11 4 2; ReLU True; MaxPool2d 3 2; Conv2d 64 192 5 padding=2; ReLU True; MaxPool2d 3 2; "
    "Conv2d 192 384 3 padding=1; ReLU True; Conv2d 384 256 3 padding=1; ReLU True; MaxPool2d 3 2; Flatten; Dropout; "
    "Linear 9216 2048; ReLU True; Linear 2048 1000",
    "lenet": "Conv2d 1 32 3; ReLU; Conv2d 32 64 3; ReLU; MaxPool2d 2; Dropout 0.25; Flatten; Linear 9216 128; ReLU; "
    "Dropout 0.5; Linear 128 10",
    "c3d": "Conv3d 3 32 3 padding=1; ReLU; MaxPool3d (1,2,2); Conv3d 32 64 3 padding=1; ReLU; MaxPool3d 2; "
    f"Conv3d 64 128 3 padding=1; ReLU; Conv3d 128 128 3 padding=1; ReLU; MaxPool3d 2; {head(128, 101, 3)}",
    "resnet_3d": "unit 1 16 5 2 dims=3; basic 16 16 dims=3; basic 16 32 2 dims=3; basic 32 64 2 dims=3; "
    f"{head(64, 10, 3)}",
    "dilated": "unit 3 30 5; unit 30 50 3 2; unit 50 50 3 d=2; unit 50 70 3 d=4; Dropout2d 0.1; unit 70 33 1; "
    f"{head(33, 11)}",
    "perceptron": "Linear 1024 2048; ReLU; BatchNorm1d 2048; Linear 2048 2048; Tanh; Dropout 0.2; Linear 2048 1000",
    # Strided convolutions down, transposed ones up, kernels of 5.
    "autoencoder": "Conv2d 3 32 5 2 2; PReLU 32; Conv2d 32 64 5 2 2; InstanceNorm2d 64 affine=True; LeakyReLU 0.1; "
    "Conv2d 64 96 5 2 2; ELU; ConvTranspose2d 96 64 5 2 2 1; ReLU; ConvTranspose2d 64 32 5 2 2 1; ReLU; "
    "ConvTranspose2d 32 3 5 2 2 1",
}
