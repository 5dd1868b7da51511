"""Other networks: encoders and decoders, graphs, tables, recurrent convolutions, checkpoints; and their batches and losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scripts.bench.networks.images import head, unit
from scripts.bench.networks.steps import Inputs
from scripts.bench.networks.transformers import Block


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


def image(shape: Sequence[int], classes: int, *positions: int) -> Callable[[int, str], tuple[Inputs, Tensor]]:
    """One tensor per sample, and one class per sample or per position."""
    return lambda b, d: ((torch.randn(b, *shape, device=d),), torch.randint(0, classes, (b, *positions), device=d))


def pair(shape: Sequence[int], aim: Sequence[int]) -> Callable[[int, str], tuple[Inputs, Tensor]]:
    """One input tensor and one target tensor per sample."""
    return lambda b, d: ((torch.randn(b, *shape, device=d),), torch.rand(b, *aim, device=d))


def text(
    length: int, vocabulary: int, classes: int = 0, *, inputs: int = 1
) -> Callable[[int, str], tuple[Inputs, Tensor]]:
    """Token sequences, and one class per sample; with `classes` 0, one token per position."""

    def make(b: int, d: str) -> tuple[Inputs, Tensor]:
        tokens = tuple(torch.randint(1, vocabulary, (b, length), device=d) for _ in range(inputs))
        return tokens, torch.randint(0, classes, (b,), device=d) if classes else torch.randint(
            0, vocabulary, (b, length), device=d
        )

    return make


def sentences(b: int, d: str) -> tuple[Inputs, Tensor]:
    """Token sequences of decreasing length. The lengths are on the host, as packing requires."""
    lengths = torch.tensor([max(4, 48 - 40 * i // b) for i in range(b)])
    return (torch.randint(1, 8000, (b, 48), device=d), lengths), torch.randint(0, 4, (b,), device=d)


def graph(b: int, d: str) -> tuple[Inputs, Tensor]:
    """Nodes and edges of `b` small graphs."""
    return (torch.randn(200 * b, 16, device=d), torch.randint(0, 200 * b, (2, 1000 * b), device=d)), torch.randint(
        0, 7, (200 * b,), device=d
    )


def clicks(b: int, d: str) -> tuple[Inputs, Tensor]:
    """Dense features and four bags of ten indices, 32 samples per unit of the batch."""
    n = 32 * b
    return (
        torch.randn(n, 13, device=d),
        *(torch.randint(0, m, (n, 10), device=d) for m in (20000, 5000, 1000, 50)),
    ), torch.rand(n, 1, device=d)
