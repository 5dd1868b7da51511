"""Random networks of sequences: transformers and recurrent networks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scripts.lab.price_networks import parts
from scripts.lab.price_networks.parts import Draw, Layer, Network, residual

Rotation = tuple[Tensor, Tensor]  # cosines and sines, one row per position


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What the blocks of a transformer share. `fused`: one op computes attention."""

    norm: Layer = nn.LayerNorm
    activation: Layer | None = nn.GELU  # None: a gated linear unit
    fused: bool = True
    causal: bool = False
    bias: bool = True
    dropout: float = 0.0


class Attention(nn.Module):
    """Self-attention. The shapes of input and output are (batch, length, width)."""

    def __init__(self, width: int, heads: int, style: Style | None = None) -> None:
        super().__init__()
        self.heads, self.style = heads, style or Style()
        self.enter = nn.Linear(width, 3 * width, bias=self.style.bias)
        self.leave = nn.Linear(width, width, bias=self.style.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None, rotation: Rotation | None = None) -> Tensor:
        """The attended values. `mask`: positions that are attended to; `rotation`: of queries and keys."""
        query, key, value = self.enter(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        if rotation is not None:
            query, key = _rotated(query, *rotation), _rotated(key, *rotation)
        compute = self._fused if self.style.fused else self._products
        y: Tensor = self.leave(compute(query, key, value, mask).transpose(1, 2).flatten(2))
        return y

    def _fused(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        dropout, causal = self.style.dropout if self.training else 0.0, self.style.causal and mask is None
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, causal)

    def _products(self, query: Tensor, key: Tensor, value: Tensor, _: Tensor | None) -> Tensor:
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        if self.style.causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        return F.dropout(scores.softmax(-1), self.style.dropout, self.training) @ value


def _rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return torch.cat([left * cosines - right * sines, left * sines + right * cosines], -1).to(x.dtype)


class _RootMeanSquare(nn.Module):
    """RMSNorm of separate ops, as many repositories write it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def _feed_forward(width: int, inner: int, style: Style) -> nn.Module:
    enter = nn.Linear(width, inner, bias=style.bias)
    if style.activation is not None:
        return nn.Sequential(enter, style.activation(), nn.Linear(inner, width, bias=style.bias))
    gate = nn.Sequential(nn.Linear(width, inner, bias=False), nn.SiLU())
    return nn.Sequential(parts.product(gate, enter), nn.Linear(inner, width, bias=False))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, style: Style) -> None:
        super().__init__()
        self.norm, self.attention = style.norm(width), Attention(width, heads, style)
        self.dropout = nn.Dropout(style.dropout)
        self.rest = residual(style.norm(width), _feed_forward(width, inner, style), nn.Dropout(style.dropout))

    def forward(self, x: Tensor, mask: Tensor | None = None, rotation: Rotation | None = None) -> Tensor:
        y: Tensor = self.rest(x + self.dropout(self.attention(self.norm(x), mask, rotation)))
        return y


class _LanguageModel(nn.Module):
    """Two blocks between an embedding and its logits. `masked`: attend only to some words."""

    def __init__(self, words: int, length: int, heads: int, width: int, inner: int, style: Style, masked: bool) -> None:
        super().__init__()
        self.masked, self.rotated, self.head_width = masked, not style.bias, width // heads
        self.embedding, self.positions = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList([_Block(width, heads, inner, style) for _ in range(2)])
        self.norm, self.logits = style.norm(width), nn.Linear(width, words, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        batch, length = words.shape
        mask = (words > 2)[:, None, None, :].expand(batch, 1, length, length) if self.masked else None
        x, rotation = self.embedding(words) + self.positions, self._rotation(words) if self.rotated else None
        for block in self.blocks:
            x = block(x, mask, rotation)
        return torch.flatten(self.logits(self.norm(x)), 0, 1)

    def _rotation(self, words: Tensor) -> Rotation:
        frequencies = 1e4 ** (-torch.arange(0, self.head_width, 2, device=words.device).float() / self.head_width)
        angles = torch.outer(torch.arange(words.shape[1], device=words.device).float(), frequencies)
        return angles.cos(), angles.sin()


def language(draw: Draw) -> Network:
    """Transformers as in BERT, GPT and LLaMA."""
    heads, words = draw.pick(4, 6, 8, 12, 16), draw.pick(1000, 8192, 30522, 32000, 50257)
    width = heads * draw.pick(32, 64, 64, 80, 96, 128)
    norm = draw.layer(nn.LayerNorm, nn.LayerNorm, _RootMeanSquare, getattr(nn, "RMSNorm", nn.LayerNorm))
    style = Style(
        norm=norm,
        activation=draw.pick(nn.GELU, nn.ReLU, lambda: nn.GELU(approximate="tanh"), None),
        fused=draw.chance(0.67),
        causal=draw.chance(0.6),
        bias=norm is nn.LayerNorm,
        dropout=draw.pick(0.0, 0.0, 0.1),
    )
    length = draw.pick(128, 197, 256, 384, 512, 1024, 2048)
    limits = [draw.pick(4, 8, 16, 32, 64), int(2.5e7 / (length * width)), int(6e8 / (length * words))]
    batch = max(1, min(limits if style.fused else [*limits, int(3e8 / (heads * length * length))]))
    inner = draw.pick(2, 4, 4) * width if style.activation else width * 8 // 3 // 64 * 64 + 64
    masked = style.fused and not style.causal and draw.chance(0.5)
    model = _LanguageModel(words, length, heads, width, inner, style, masked)
    if draw.chance(0.3):
        model.logits.weight = model.embedding.weight
    return model, parts.indices(words, batch, length), parts.cross_entropy


class _VisionTransformer(nn.Module):
    """Attention between patches of an image, with a class token, or within shifted windows if they tile the image."""

    def __init__(self, width: int, heads: int, size: int, patch: int, window: int, fused: bool, classes: int) -> None:
        super().__init__()
        self.window, self.side = window, size // patch
        self.patches, self.token = nn.Conv2d(3, width, patch, patch), nn.Parameter(torch.zeros(1, 1, width))
        self.blocks = nn.Sequential(*[_Block(width, heads, 4 * width, Style(fused=fused)) for _ in range(2)])
        self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        tiled = self.window and self.side % self.window == 0
        x = self._windows(x) if tiled else self.blocks(torch.cat([self.token.expand(len(x), -1, -1), x], 1))
        x = self.norm(x)
        logits: Tensor = self.logits(x.mean(1) if tiled else x[:, 0])
        return logits

    def _windows(self, x: Tensor) -> Tensor:
        count, window, width = self.side // self.window, self.window, x.shape[-1]
        shifted = torch.roll(x.unflatten(1, (self.side, self.side)), (-window // 2, -window // 2), (1, 2))
        tiles = shifted.reshape(-1, count, window, count, window, width).transpose(2, 3)
        y = self.blocks(tiles.reshape(-1, window**2, width)).view(-1, count, count, window, window, width)
        return torch.reshape(y.transpose(2, 3), x.shape)


def vision(draw: Draw) -> Network:
    """Transformers of images."""
    heads, size, patch = draw.pick(3, 4, 6, 12, 16), draw.pick(96, 160, 224, 256), draw.pick(8, 16, 16, 32)
    width, window, fused = heads * draw.pick(32, 64, 64), draw.pick(0, 0, 7, 8), draw.chance(0.5)
    model = _VisionTransformer(width, heads, size, patch, window, fused, draw.pick(100, 1000))
    return model, parts.normal(draw.batch((size / patch) ** 2 * width, 1e7), 3, size, size), parts.cross_entropy


def recurrent(draw: Draw) -> Network:
    """LSTM and GRU, of up to three layers and both directions."""
    words, width, hidden = (
        draw.pick(1000, 10000, 30000),
        draw.pick(64, 128, 256, 300, 512),
        draw.pick(64, 256, 512, 650, 1024),
    )
    length, batch, both = draw.pick(20, 35, 64, 100, 200), draw.pick(8, 20, 32, 64, 128), draw.chance(0.4)
    options = {"num_layers": draw.pick(1, 2, 3), "batch_first": draw.chance(0.5), "bidirectional": both}
    layer = draw.pick(nn.LSTM, nn.LSTM, nn.GRU)(width, hidden, **options)
    first = [nn.Embedding(words, width), layer, parts.Call(lambda outputs: outputs[0].flatten(0, 1))]
    logits = nn.Linear(hidden * (2 if both else 1), draw.pick(10, 1000, 5000))
    shape = (batch, length) if options["batch_first"] else (length, batch)
    return nn.Sequential(*first, logits), parts.indices(words, *shape), parts.cross_entropy
