"""Transformers and mixers for images and text."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scripts.bench.networks.images import Apply, Residual, head


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
        """Attention and a perceptron, each with a residual connection."""
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
    """A decoder of tokens with learned positions and a tied head."""

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
        """Scores of the vocabulary at every position."""
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
        """Attention and the gated perceptron, each with a residual connection."""

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
        """Scores of the vocabulary at every position."""
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
