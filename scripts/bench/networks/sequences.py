"""Audio and sequence networks: one-dimensional convolutions, recurrent layers, packed sequences and cells."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scripts.bench.networks.images import Apply, First, Residual, head, unit
from scripts.bench.networks.transformers import Block


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
    """A classifier of packed sentences of different lengths."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.tokens = nn.Embedding(8000, 128, padding_idx=0)
        self.reader = getattr(nn, kind)(128, 192, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.head = nn.Linear(384, 4)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Scores of four classes."""
        packed = nn.utils.rnn.pack_padded_sequence(self.tokens(tokens), lengths, batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.reader(packed)[0], batch_first=True)
        scores: Tensor = self.head(out.mean(1))
        return scores


class Cells(nn.Module):
    """A recurrent cell, called step by step like a decoder."""

    def __init__(self, kind: str, width: int = 128, hidden: int = 256) -> None:
        super().__init__()
        self.cell = getattr(nn, kind)(width, hidden)
        self.pair = kind == "LSTMCell"
        self.head = nn.Linear(hidden, 20)

    def forward(self, x: Tensor) -> Tensor:
        """Scores at every step."""
        state: Any = None
        outs = []
        for step_input in x.unbind(1):
            state = self.cell(step_input, state)
            outs.append(self.head(state[0] if self.pair else state))
        return torch.stack(outs, 1)
