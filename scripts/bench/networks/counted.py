"""Networks for the counting benchmark, written like their papers and common implementations.

Each function returns a model on meta and the inputs of one sample; weights are never allocated. `true_macs` derives the MACs
from shapes, without a counter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from profiler_kit.loading import load
from profiler_kit.records.target import TargetSpec

ModelAndInputs = tuple[nn.Module, tuple[Tensor, ...]]


class EncoderBlock(nn.Module):
    """A pre-norm block of a vision transformer."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(0.1), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then two linear layers, each with a residual connection."""
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        x = x + self.dropout(y)
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class VisionTransformer(nn.Module):
    """ViT (Dosovitskiy et al., 2020): patches by a convolution, a class token, encoder blocks, one linear head."""

    def __init__(self, width: int, depth: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, 16, stride=16)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embedding = nn.Parameter(torch.zeros(1, 197, width))
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.Sequential(*(EncoderBlock(width, heads, hidden) for _ in range(depth)))
        self.ln = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of 1000 classes."""
        patches = self.conv_proj(x).flatten(2).permute(0, 2, 1)
        tokens = torch.cat([self.class_token.expand(x.shape[0], -1, -1), patches], dim=1)
        scores: Tensor = self.head(self.ln(self.layers(self.dropout(tokens + self.pos_embedding)))[:, 0])
        return scores


class Gelu(nn.Module):
    """GELU by its tanh approximation, written out."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply GELU as eight pointwise ops."""
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class GPT2Block(nn.Module):
    """A decoder block of GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.resid_dropout = nn.Dropout(0.1)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), Gelu(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        """Causal attention, then two linear layers, each with a residual connection."""
        batch, length, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.resid_dropout(self.c_proj(mixed.transpose(1, 2).contiguous().view(batch, length, width)))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class GPT2(nn.Module):
    """GPT-2 (Radford et al., 2019), its output layer tied to the token embedding."""

    def __init__(self, vocabulary: int, context: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.drop = nn.Dropout(0.1)
        self.h = nn.ModuleList(GPT2Block(width, heads) for _ in range(depth))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token at every position."""
        x = self.drop(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device)))
        for block in self.h:
            x = block(x)
        scores: Tensor = self.lm_head(self.ln_f(x))
        return scores


class RMSNorm(nn.Module):
    """Root-mean-square normalization, written out as decoders do."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Statistics in float32, whatever `x` is."""
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    left, right = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return x * cosine + torch.cat((-right, left), dim=-1) * sine


class LlamaAttention(nn.Module):
    """Causal attention with rotary positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Shapes: `x` (batch, length, width); `cosine`, `sine` (length, width per head)."""
        batch, length, width = x.shape
        q, k, v = (
            projection(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = _rotated(q, cosine, sine), _rotated(k, cosine, sine)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class LlamaMLP(nn.Module):
    """A gated pair of linear layers."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """SwiGLU."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class LlamaBlock(nn.Module):
    """A decoder block of Llama."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(width)
        self.self_attn = LlamaAttention(width, heads)
        self.post_attention_layernorm = RMSNorm(width)
        self.mlp = LlamaMLP(width, hidden)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Attention, then the gated layers, each with a residual connection."""
        x = x + self.self_attn(self.input_layernorm(x), cosine, sine)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Llama(nn.Module):
    """Llama (Touvron et al., 2023)."""

    def __init__(self, vocabulary: int, width: int, depth: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaBlock(width, heads, hidden) for _ in range(depth))
        self.norm = RMSNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token at every position."""
        steps = torch.arange(0, self.head_width, 2, device=tokens.device, dtype=torch.float32) / self.head_width
        positions = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
        angles = torch.outer(positions, 1.0 / 10000.0**steps)
        angles = torch.cat((angles, angles), dim=-1)
        cosine, sine = angles.cos(), angles.sin()
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        scores: Tensor = self.lm_head(self.norm(x))
        return scores


def resnet50() -> ModelAndInputs:
    """ResNet-50 and one image."""
    file = Path(__file__).resolve().parents[3] / "models" / "resnet.py"
    return load(TargetSpec(spec=f"{file}:resnet50")).model, (torch.zeros(1, 3, 224, 224, device="meta"),)


def vit_b_16() -> ModelAndInputs:
    """ViT-B/16 and one image."""
    with torch.device("meta"):
        return VisionTransformer(width=768, depth=12, heads=12, hidden=3072), (torch.zeros(1, 3, 224, 224),)


def gpt2_small() -> ModelAndInputs:
    """GPT-2 with 124 million parameters and 1024 tokens."""
    with torch.device("meta"):
        model = GPT2(vocabulary=50257, context=1024, width=768, depth=12, heads=12)
        return model, (torch.zeros(1, 1024, dtype=torch.long),)


def llama_7b() -> ModelAndInputs:
    """Llama with 6.7 billion parameters and 2048 tokens."""
    with torch.device("meta"):
        model = Llama(vocabulary=32000, width=4096, depth=32, heads=32, hidden=11008)
        return model, (torch.zeros(1, 2048, dtype=torch.long),)


MODELS: Final[dict[str, Callable[[], ModelAndInputs]]] = {
    "resnet50": resnet50,
    "vit_b_16": vit_b_16,
    "gpt2_small": gpt2_small,
    "llama_7b": llama_7b,
}


def resnet50_macs() -> int:
    """Sum the convolutions and the last linear layer. The second convolution of a block has the stride."""
    macs = 112**2 * 64 * 3 * 49
    before, side = 64, 56
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            after = side // 2 if stage and not block else side
            macs += side**2 * before * width + after**2 * (9 * width**2 + 4 * width**2)
            macs += after**2 * before * 4 * width if not block else 0  # the shortcut changes width
            before, side = 4 * width, after
    return macs + before * 1000


def vit_b_16_macs() -> int:
    """Sum patches, four projections and the MLP per token and layer, attention per pair of tokens, and the head."""
    tokens, width, hidden = 197, 768, 3072
    layer = tokens * (4 * width**2 + 2 * width * hidden) + 2 * tokens**2 * width
    return 196 * width * 3 * 16**2 + 12 * layer + width * 1000


def gpt2_small_macs() -> int:
    """Sum twelve width x width matrices per token and layer, the output layer and the attention."""
    tokens, width, depth = 1024, 768, 12
    return tokens * (depth * 12 * width**2 + 50257 * width) + depth * 2 * tokens**2 * width


def llama_7b_macs() -> int:
    """Sum linear layers per token and attention per pair of tokens."""
    tokens, width, depth, hidden, vocabulary = 2048, 4096, 32, 11008, 32000
    linear = depth * (4 * width**2 + 3 * width * hidden) + vocabulary * width
    return tokens * linear + depth * 2 * tokens**2 * width


# (MACs of forward, MACs of the first convolution, which needs no gradient of its input)
MACS: Final[dict[str, tuple[int, int]]] = {
    "resnet50": (resnet50_macs(), 112**2 * 64 * 3 * 49),
    "vit_b_16": (vit_b_16_macs(), 196 * 768 * 3 * 16**2),
    "gpt2_small": (gpt2_small_macs(), 0),
    "llama_7b": (llama_7b_macs(), 0),
}


def true_macs(name: str, *, backward: bool) -> int:
    """Return the MACs of forward on one sample, or of forward and backward, derived from shapes."""
    forward, without_gradient = MACS[name]
    return forward + backward * (2 * forward - without_gradient)
