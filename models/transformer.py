"""A small GPT: pre-norm decoder blocks, causal attention, the output layer tied to the token embedding."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 8192
CONTEXT = 256


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed: Tensor = self.proj(out.transpose(1, 2).reshape(batch, length, width))
        return mixed


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        update: Tensor = self.mlp(self.ln2(x))
        return x + update


class GPT(nn.Module):
    def __init__(
        self, vocabulary: int = VOCABULARY, context: int = CONTEXT, width: int = 384, depth: int = 6, heads: int = 6
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.ln(x))
        return scores


def example_inputs() -> Tensor:
    return torch.randint(0, VOCABULARY, (8, CONTEXT))


def loss_fn(output: Tensor, tokens: Tensor) -> Tensor:
    """Each position predicts the next token."""
    return F.cross_entropy(output[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def configure_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-4)
