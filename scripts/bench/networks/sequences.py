"""Networks of sequences, tables and graphs: convolutions of one dimension, recurrent layers, transformers, message passing."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from scripts.bench.networks.layers import Plan, Residual, apply, first, head, stack


def temporal() -> nn.Module:
    """A temporal convolutional network: dilations 1 to 32 (Bai et al., 2018)."""

    def block(i: int, o: int, d: int) -> Residual:
        rows = "; ".join(f"Conv1d {c} {o} 3 padding={d} dilation={d}; ReLU; Dropout 0.2" for c in (i, o))
        return Residual(stack(rows), nn.Conv1d(i, o, 1) if i != o else None, nn.ReLU())

    deeper = "; ".join(f"block 64 64 {2**n}" for n in range(1, 6))
    return stack(f"block 8 64 1; {deeper}; Conv1d 64 10 1", block=block)


def wavenet(w: int = 64, layers: int = 8) -> nn.Module:
    """WaveNet's gated dilated layers (van den Oord et al., 2016)."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.start(x)
        total: Any = 0
        for gate, mix in zip(m.gated, m.mixed, strict=True):
            a, b = gate(x).chunk(2, 1)
            more, skip = mix(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, total = x + more, total + skip
        out: Tensor = m.end(total)
        return out

    return Plan(
        run,
        start=nn.Conv1d(1, w, 1),
        gated=nn.ModuleList(nn.Conv1d(w, 2 * w, 3, padding=2**i, dilation=2**i) for i in range(layers)),
        mixed=nn.ModuleList(nn.Conv1d(w, 2 * w, 1) for _ in range(layers)),
        end=stack(f"ReLU; Conv1d {w} {w} 1; ReLU; Conv1d {w} 256 1"),
    )


def wav2vec() -> nn.Module:
    """wav2vec 2.0's stem of seven convolutions, grouped position convolution, and two blocks (Baevski et al., 2020)."""

    def layer(i: int, k: int, s: int) -> nn.Sequential:
        return stack(f"Conv1d {i} 256 {k} {s} bias=False; {'GroupNorm 256 256; ' if i == 1 else ''}GELU")

    def place() -> Residual:
        rows = "Conv1d 256 256 64 padding=32 groups=16; cut; GELU"
        return Residual(stack(rows, cut=lambda: apply(lambda x: x[:, :, :-1])))

    rows = "layer 1 10 5; 4 * layer 256 3 2; 2 * layer 256 2 2; place; turned 0 2 1; 2 * block 256 4 dropout=0.1"
    return stack(f"{rows}; Linear 256 32", layer=layer, place=place, block=Block)


def vocoder() -> nn.Module:
    """HiFi-GAN's generator (Kong et al., 2020): transposed convolutions of 16 and 4, dilated blocks."""

    def block(w: int) -> nn.Sequential:
        rows = (
            f"LeakyReLU 0.1; Conv1d {w} {w} {k} padding={d * (k - 1) // 2} dilation={d}"
            for k, d in ((3, 1), (7, 3), (11, 5))
        )
        return nn.Sequential(*(Residual(stack(row)) for row in rows))

    def up(w: int, k: int, s: int) -> nn.Sequential:
        return stack(f"LeakyReLU 0.1; ConvTranspose1d {w} {w // 2} {k} {s} {(k - s) // 2}; block {w // 2}", block=block)

    rows = (
        "Conv1d 80 256 7 padding=3; up 256 16 8; up 128 16 8; up 64 4 2; up 32 4 2; LeakyReLU; Conv1d 16 1 7 padding=3"
    )
    return stack(f"{rows}; Tanh", up=up)


def reader(rows: str) -> nn.Module:
    """A stack with recurrent layers, of which the sequence of outputs is used; ``last`` is the last output."""
    return stack(
        rows,
        **{
            kind: lambda *sizes, kind=kind, **options: first(getattr(nn, kind)(*sizes, **options))
            for kind in ("GRU", "LSTM", "RNN")
        },
        last=lambda: apply(lambda x: x[:, -1]),
        bands=lambda: apply(lambda x: x.flatten(1, 2).permute(2, 0, 1)),
        columns=lambda: apply(lambda x: x.squeeze(2).transpose(1, 2)),
    )


def packed(kind: str) -> nn.Module:
    """A classifier of packed sentences of different lengths."""

    def run(m: Any, tokens: Tensor, lengths: Tensor) -> Tensor:
        sequence = nn.utils.rnn.pack_padded_sequence(m.tokens(tokens), lengths, batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(m.reader(sequence)[0], batch_first=True)
        scores: Tensor = m.head(out.mean(1))
        return scores

    layers = getattr(nn, kind)(128, 192, 2, batch_first=True, bidirectional=True, dropout=0.1)
    return Plan(run, tokens=nn.Embedding(8000, 128, padding_idx=0), reader=layers, head=nn.Linear(384, 4))


def cells(kind: str) -> nn.Module:
    """A recurrent cell, called step by step like a decoder."""

    def run(m: Any, x: Tensor) -> Tensor:
        state: Any = None
        outs = []
        for step_input in x.unbind(1):
            state = m.cell(step_input, state)
            outs.append(m.head(state[0] if kind == "LSTMCell" else state))
        return torch.stack(outs, 1)

    return Plan(run, cell=getattr(nn, kind)(128, 256), head=nn.Linear(256, 20))


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


def vision(image: int, patch: int, width: int, depth: int, heads: int) -> nn.Module:
    """A vision transformer with a class token."""

    def run(m: Any, x: Tensor) -> Tensor:
        x = m.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([m.token.expand(x.shape[0], -1, -1), x], 1) + m.position
        out: Tensor = m.head(m.norm(m.blocks(x))[:, 0])
        return out

    model = Plan(
        run,
        patches=nn.Conv2d(3, width, patch, patch),
        blocks=stack(f"{depth} * block {width} {heads}", block=Block),
        norm=nn.LayerNorm(width),
        head=nn.Linear(width, 1000),
    )
    model.token = nn.Parameter(torch.zeros(1, 1, width))
    model.position = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, width))
    return model


def language(vocabulary: int, width: int, depth: int, heads: int) -> nn.Module:
    """A decoder of tokens with learned positions and a tied head."""

    def run(m: Any, tokens: Tensor) -> Tensor:
        x = m.tokens(tokens) + m.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in m.blocks:
            x = block(x)
        out: Tensor = m.head(m.norm(x))
        return out

    blocks = nn.ModuleList(Block(width, heads, causal=True, dropout=0.1) for _ in range(depth))
    tokens, out = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
    out.weight = tokens.weight
    return Plan(
        run, tokens=tokens, positions=nn.Embedding(512, width), blocks=blocks, norm=nn.LayerNorm(width), head=out
    )


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
        """Scores of the vocabulary at every position of the target."""
        memory, last = self.encoder(self.source(source))
        keys, state, outs = self.key(memory), last[0], []
        for token in self.aim(aim).unbind(1):
            weights = torch.softmax(self.score(torch.tanh(keys + self.query(state).unsqueeze(1))), 1)
            state = self.decoder(torch.cat([token, (weights * memory).sum(1)], -1), state)
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
        """Scores of the vocabulary at every position of the target."""
        mask = torch.triu(torch.full((aim.shape[1], aim.shape[1]), float("-inf"), device=aim.device), 1)
        out: Tensor = self.head(self.inner(self.source(source), self.aim(aim), tgt_mask=mask))
        return out


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
        """The reconstructed image."""
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
        """One score per sample."""
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
    """Transformer blocks with activation checkpointing."""

    def __init__(self, width: int = 256, depth: int = 6) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, 4, dropout=0.1) for _ in range(depth)])
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of ten classes."""

        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        out: Tensor = self.head(x.mean(1))
        return out


# Rows of `reader`.
ROWS = {
    # M5 on raw audio (Dai et al., 2016).
    "audio_m5": "unit 1 64 80 16 dims=1; MaxPool1d 4; unit 64 64 3 dims=1; MaxPool1d 4; unit 64 128 3 dims=1; MaxPool1d 4; "
    f"unit 128 256 3 dims=1; {head(256, 35, 1)}",
    # Deep Speech 2's shape (Amodei et al., 2015): two tall convolutions, then bidirectional GRUs.
    "speech": "Conv2d 1 32 (41,11) (2,2) (20,5); BatchNorm2d 32; Hardtanh 0 20; Conv2d 32 32 (21,11) (2,1) (10,5); "
    "BatchNorm2d 32; Hardtanh 0 20; bands; GRU 640 256 2 bidirectional=True; Linear 512 29",
    # Convolutions and a bidirectional LSTM that read a line of text (Shi et al., 2015).
    "crnn": "unit 1 32 3; MaxPool2d 2; unit 32 64 3; MaxPool2d 2; unit 64 128 3; MaxPool2d (2,1); unit 128 128 3; "
    "MaxPool2d (4,1); columns; LSTM 128 128 2 bidirectional=True batch_first=True; Linear 256 80",
    "audio_gru": "unit 64 128 5 dims=1; unit 128 128 5 2 dims=1; turned 0 2 1; GRU 128 256 2 batch_first=True dropout=0.1; "
    "last; Linear 256 10",
    "lstm_language": "Embedding 10000 256; Dropout 0.2; LSTM 256 512 2 dropout=0.2 batch_first=True; Linear 512 10000",
    "projected": "Linear 40 128; LSTM 128 512 2 proj_size=128 batch_first=True; Linear 128 50",
    "tanh_rnn": "Embedding 5000 128; RNN 128 256 2 batch_first=True; last; Linear 256 5",
}
