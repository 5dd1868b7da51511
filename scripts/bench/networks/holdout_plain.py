"""Networks of the hold-out for the memory prediction that need only torch: well-known designs, written compactly."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scripts.bench.networks.layers import Plan, Residual, head, stack


def conv_norm(i: int, o: int, k: int = 3, s: int = 1, d: int = 1) -> str:
    """The rows of a convolution, batch normalization and activation."""
    return f"Conv2d {i} {o} {k} {s} {d * (k // 2)} {d} bias=False; BatchNorm2d {o}; ReLU True; "


def dilated_residual() -> nn.Module:
    """A dilated residual network (Yu et al., 2017): 3x3 kernels of dilation 2 and 4 with a bias."""
    rows = conv_norm(3, 32, 7, 2)
    for i, o, d in ((32, 64, 1), (64, 128, 2), (128, 128, 2), (128, 256, 4), (256, 256, 4)):
        rows += f"{conv_norm(i, o, 3, 1, d)}Conv2d {o} {o} 3 padding={d} dilation={d}; ReLU; "
    return stack(f"{rows}Conv2d 256 19 1")


def wide_kernels() -> nn.Module:
    """Dense kernels of 11, 9 and 7, as in early networks."""
    rows = "Conv2d 3 48 11 2 5; ReLU; Conv2d 48 64 11 padding=5; ReLU; MaxPool2d 2; Conv2d 64 96 9 padding=4; ReLU"
    return stack(f"{rows}; Conv2d 96 128 7 padding=3; ReLU; {head(128, 50)}")


def point_set() -> nn.Module:
    """PointNet (Qi et al., 2017): shared layers over points, then the maximum."""
    widths = ((3, 64), (64, 64), (64, 128), (128, 1024))
    points = stack("; ".join(f"Conv1d {i} {o} 1; BatchNorm1d {o}; ReLU" for i, o in widths))
    out = stack("Linear 1024 256; ReLU; Dropout 0.3; Linear 256 40")
    return Plan(lambda m, x: m.head(m.points(x).amax(2)), points=points, head=out)


def separation() -> nn.Module:
    """Conv-TasNet (Luo and Mesgarani, 2019): dilated depthwise convolutions of one dimension between an encoder and decoder."""
    blocks = []
    for d in (1, 2, 4, 8, 16, 32) * 2:
        rows = f"PReLU; GroupNorm 1 256; Conv1d 256 256 3 padding={d} dilation={d} groups=256; PReLU; GroupNorm 1 256"
        blocks.append(Residual(stack(f"Conv1d 128 256 1; {rows}; Conv1d 256 128 1")))
    encoder, decoder = nn.Conv1d(1, 256, 16, 8, bias=False), nn.ConvTranspose1d(256, 1, 16, 8, bias=False)
    masks = nn.Sequential(nn.GroupNorm(1, 256), nn.Conv1d(256, 128, 1), *blocks, nn.PReLU(), nn.Conv1d(128, 256, 1))

    def run(m: Any, x: Tensor) -> Tensor:
        code = m.encoder(x)
        out: Tensor = m.decoder(code * torch.sigmoid(m.masks(code)))
        return out

    return Plan(run, encoder=encoder, masks=masks, decoder=decoder)


def noise(i: int, o: int) -> Plan:
    """A residual block of a denoising network: group normalization, SiLU, two convolutions."""
    rows = f"GroupNorm 8 {i}; SiLU; Conv2d {i} {o} 3 padding=1; GroupNorm 8 {o}; SiLU; Dropout 0.1; Conv2d {o} {o} 3 padding=1"
    skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()
    return Plan(lambda m, x: m.skip(x) + m.inner(x), inner=stack(rows), skip=skip)


class Denoiser(nn.Module):
    """The U-Net of a diffusion model (Ho et al., 2020), with attention at the lowest resolution."""

    def __init__(self, w: int = 64) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, w, 3, padding=1)
        self.down = nn.ModuleList([noise(w, w), noise(w, 2 * w), noise(2 * w, 4 * w)])
        self.shrink = nn.ModuleList([nn.Conv2d(c, c, 3, 2, 1) for c in (w, 2 * w)])
        self.attend = nn.MultiheadAttention(4 * w, 4, batch_first=True)
        self.up = nn.ModuleList([noise(6 * w, 2 * w), noise(3 * w, w)])
        self.last = nn.Sequential(nn.GroupNorm(8, w), nn.SiLU(), nn.Conv2d(w, 3, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """The predicted noise."""
        x = self.first(x)
        skips = []
        for level, block in enumerate(self.down):
            x = block(x)
            if level < 2:
                skips.append(x)
                x = self.shrink[level](x)
        flat = x.flatten(2).transpose(1, 2)
        x = x + self.attend(flat, flat, flat, need_weights=False)[0].transpose(1, 2).reshape(x.shape)
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2), skips.pop()], 1))
        out: Tensor = self.last(x)
        return out


class Unpooled(nn.Module):
    """SegNet (Badrinarayanan et al., 2015): positions of the maxima place the values in the decoder."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 48, 96, 160)
        self.down = nn.ModuleList(stack(conv_norm(i, o)) for i, o in itertools.pairwise(widths))
        self.up = nn.ModuleList(stack(conv_norm(o, max(i, 12))) for i, o in itertools.pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        """Scores per position."""
        places = []
        for block in self.down:
            x, where = F.max_pool2d(block(x), 2, return_indices=True)
            places.append(where)
        for block in reversed(self.up):
            x = block(F.max_unpool2d(x, places.pop(), [2, 2]))
        return x


class Warped(nn.Module):
    """A spatial transformer (Jaderberg et al., 2015): the network resamples its own input."""

    def __init__(self) -> None:
        super().__init__()
        self.place = stack(conv_norm(3, 16, 7, 2) + conv_norm(16, 32, 5, 2) + head(32, 6))
        self.classes = stack(f"{conv_norm(3, 64, 5)}MaxPool2d 2; {conv_norm(64, 128, 5)}{head(128, 43)}")

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the resampled image."""
        grid = F.affine_grid(self.place(x).view(-1, 2, 3), list(x.shape), align_corners=False)
        out: Tensor = self.classes(F.grid_sample(x, grid.to(x.dtype), align_corners=False))
        return out


def critic() -> nn.Module:
    """A WGAN's critic (Arjovsky et al., 2017): kernels of 5 with stride 2, leaky activations."""
    widths = ((3, 64), (64, 128), (128, 256), (256, 512))
    rows = "; ".join(f"Conv2d {i} {o} 5 2 2; InstanceNorm2d {o} affine=True; LeakyReLU 0.2" for i, o in widths)
    return stack(f"{rows}; Flatten; LazyLinear 1")


class DenseResidual(nn.Module):
    """ESRGAN's dense block (Wang et al., 2018)."""

    def __init__(self, width: int = 48, growth: int = 24) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(width + n * growth, growth if n < 4 else width, 3, padding=1) for n in range(5)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The input plus a fifth of the last layer."""
        features = [x]
        for layer in self.layers[:-1]:
            features.append(F.leaky_relu(layer(torch.cat(features, 1)), 0.2))
        out: Tensor = x + 0.2 * self.layers[-1](torch.cat(features, 1))
        return out


def enlarged() -> nn.Module:
    """Three dense residual blocks and an enlargement by two."""
    rows = "Conv2d 3 48 3 padding=1; 3 * block; Upsample scale_factor=2; Conv2d 48 3 9 padding=4"
    return stack(rows, block=DenseResidual)


class ConformerBlock(nn.Module):
    """Perceptron, attention, convolution, perceptron (Gulati et al., 2020)."""

    def __init__(self, w: int = 192) -> None:
        super().__init__()
        rows = f"LayerNorm {w}; Linear {w} {4 * w}; SiLU; Dropout 0.1; Linear {4 * w} {w}"
        self.wide = nn.ModuleList(stack(rows) for _ in range(2))
        self.norm, self.attend = nn.LayerNorm(w), nn.MultiheadAttention(w, 4, dropout=0.1, batch_first=True)
        self.gate, self.depth = nn.Conv1d(w, 2 * w, 1), nn.Conv1d(w, w, 31, padding=15, groups=w)
        self.batch, self.out = nn.BatchNorm1d(w), nn.Conv1d(w, w, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The sum of all branches."""
        x = x + 0.5 * self.wide[0](x)
        y = self.norm(x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        z = F.silu(self.batch(self.depth(F.glu(self.gate(x.transpose(1, 2)), 1))))
        out: Tensor = x + self.out(z).transpose(1, 2) + 0.5 * self.wide[1](x)
        return out


def conformer() -> nn.Module:
    """Three Conformer blocks over a spectrogram."""
    return stack("Linear 80 192; 3 * block; Linear 192 64", block=ConformerBlock)


def forecast() -> nn.Module:
    """N-BEATS (Oreshkin et al., 2019): stacks that subtract what they explain."""
    blocks = nn.ModuleList(stack("Linear 200 512; ReLU; Linear 512 512; ReLU; Linear 512 250") for _ in range(6))

    def run(m: Any, x: Tensor) -> Tensor:
        total = x.new_zeros(x.shape[0], 50)
        for block in m.blocks:
            past, future = block(x).split((200, 50), 1)
            x, total = x - past, total + future
        return total

    return Plan(run, blocks=blocks)


def brain_waves() -> nn.Module:
    """EEGNet (Lawhern et al., 2018): a long kernel in time, then depthwise ones over the electrodes."""
    rows = "Conv2d 1 16 (1,64) padding=(0,32) bias=False; BatchNorm2d 16; Conv2d 16 32 (64,1) groups=16 bias=False"
    rows += (
        "; BatchNorm2d 32; ELU; AvgPool2d (1,4); Dropout 0.25; Conv2d 32 32 (1,16) padding=(0,8) groups=32 bias=False"
    )
    return stack(f"{rows}; Conv2d 32 32 1 bias=False; BatchNorm2d 32; ELU; {head(32, 4)}")


def tagger() -> nn.Module:
    """A bidirectional GRU over features, and a perceptron per position."""
    layers = nn.GRU(100, 256, 2, bidirectional=True, batch_first=True)
    return Plan(lambda m, x: m.head(m.layers(x)[0]), layers=layers, head=stack("Linear 512 256; Tanh; Linear 256 30"))


class FourierLayer(nn.Module):
    """A layer of a Fourier neural operator (Li et al., 2020)."""

    def __init__(self, w: int = 32, modes: int = 12) -> None:
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(w, w, modes, modes, 2) / w)
        self.local = nn.Conv2d(w, w, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Products of the lowest frequencies, and a local layer."""
        spectrum = torch.fft.rfft2(x.float())
        low = torch.einsum(
            "bixy,ioxy->boxy", spectrum[..., : self.modes, : self.modes], torch.view_as_complex(self.weight)
        )
        padded = F.pad(low, (0, spectrum.shape[-1] - self.modes, 0, spectrum.shape[-2] - self.modes))
        return F.gelu(torch.fft.irfft2(padded, s=x.shape[-2:]) + self.local(x))


def operator() -> nn.Module:
    """Three Fourier layers."""
    return stack("Conv2d 3 32 1; 3 * layer; Conv2d 32 1 1", layer=FourierLayer)


def pyramid() -> nn.Module:
    """A feature pyramid (Lin et al., 2017) on a small trunk, with one head for all levels."""
    widths = ((3, 64), (64, 128), (128, 256), (256, 512))
    trunk = nn.ModuleList(stack(conv_norm(i, o, 3, 2) + conv_norm(o, o)) for i, o in widths)
    side = nn.ModuleList(nn.Conv2d(c, 128, 1) for c in (64, 128, 256, 512))
    out = stack("Conv2d 128 128 3 padding=1; ReLU; Conv2d 128 36 3 padding=1")

    def run(m: Any, x: Tensor) -> Tensor:
        levels = []
        for block, side in zip(m.trunk, m.side, strict=True):
            x = block(x)
            levels.append(side(x))
        for n in (2, 1, 0):
            levels[n] = levels[n] + F.interpolate(levels[n + 1], size=levels[n].shape[-2:])
        return torch.cat([m.head(level).flatten(2) for level in levels], 2)

    return Plan(run, trunk=trunk, side=side, head=out)


def volume_encoder() -> nn.Module:
    """An encoder of volumes with group normalization, and its mirrored decoder."""
    rows = "Conv3d 1 16 3 padding=1; GroupNorm 4 16; ReLU; Conv3d 16 32 3 2 1; GroupNorm 4 32; ReLU; Conv3d 32 64 3 2 1; ReLU"
    return stack(f"{rows}; ConvTranspose3d 64 32 2 2; ReLU; ConvTranspose3d 32 16 2 2; ReLU; Conv3d 16 1 1")


PLAIN: Final[dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]] = {
    "dilated_residual": (dilated_residual, (3, 96, 96)),
    "wide_kernels": (wide_kernels, (3, 96, 96)),
    "point_set": (point_set, (3, 1024)),
    "separation": (separation, (1, 8000)),
    "denoiser": (Denoiser, (3, 64, 64)),
    "unpooled": (Unpooled, (3, 96, 96)),
    "warped": (Warped, (3, 64, 64)),
    "critic": (critic, (3, 64, 64)),
    "enlarged": (enlarged, (3, 48, 48)),
    "conformer": (conformer, (200, 80)),
    "forecast": (forecast, (200,)),
    "brain_waves": (brain_waves, (1, 64, 256)),
    "tagger": (tagger, (120, 100)),
    "operator": (operator, (3, 64, 64)),
    "pyramid": (pyramid, (3, 128, 128)),
    "volume_encoder": (volume_encoder, (1, 32, 32, 32)),
}
