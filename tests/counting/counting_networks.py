"""Small networks of one kind each, for tests against other counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """One head of attention, by hand or by torch's op."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.fused:
            return self.out(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0])
        return self.out(torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v)


class Cells(nn.Module):
    """Recurrent cells, one step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(8, 12), nn.GRUCell(12, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(self.lstm(x)[0])


class Products(nn.Module):
    """Products of all kinds, one of them broadcast, and a weight so that it can be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 5))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.matmul(x, self.weight) + torch.bmm(x, self.weight.expand(2, 4, 5)) + torch.mm(x[0], self.weight)
        y = y + torch.addmm(y[0], x[0], self.weight) + torch.matmul(x[0, 0], x[0].T)[0]
        return torch.einsum("bij,bkj->bik", y, y) + torch.einsum("nij, jk -> nik", y, y[0].T)


class Resized(nn.Module):
    """Upsampling, and pooling to one position."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.interpolate(self.conv(x), scale_factor=2, mode="bilinear")
        return F.adaptive_avg_pool2d(F.interpolate(x, scale_factor=2, mode="nearest"), 1)


class Keywords(nn.Module):
    """A layer called by keyword, and a dict as the result."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, *, x: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        return {"y": self.second(input=self.first(x)) * scale}


Made = tuple[nn.Module, tuple[Any, ...]]


def _normed() -> nn.Module:
    norms = (nn.BatchNorm2d(8), nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True), nn.LayerNorm(5))
    return nn.Sequential(nn.Conv2d(3, 8, 1), *norms)


NETWORKS: dict[str, Callable[[], Made]] = {
    "conv": lambda: (nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()), (torch.ones(2, 3, 12, 12),)),
    "conv_1d": lambda: (nn.Conv1d(4, 6, 3, dilation=2), (torch.ones(2, 4, 9),)),
    "conv_3d": lambda: (nn.Conv3d(2, 3, 3), (torch.ones(1, 2, 5, 5, 5),)),
    "grouped": lambda: (nn.Conv2d(8, 8, 3, groups=4, stride=2), (torch.ones(2, 8, 9, 9),)),
    "transposed": lambda: (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), (torch.ones(2, 4, 7, 7),)),
    "same_padding": lambda: (nn.Conv2d(4, 6, 3, padding="same"), (torch.ones(2, 4, 7, 7),)),
    "linear": lambda: (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), (torch.ones(5, 3, 8),)),
    "norms": lambda: (_normed(), (torch.ones(2, 3, 5, 5),)),
    "attention_by_hand": lambda: (Attention(fused=False), (torch.ones(2, 6, 16),)),
    "attention_fused": lambda: (Attention(fused=True), (torch.ones(2, 6, 16),)),
    "attention_layer": lambda: (nn.MultiheadAttention(16, 4, batch_first=True), (torch.ones(2, 6, 16),) * 3),
    "encoder_layer": lambda: (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (torch.ones(2, 6, 16),)),
    "lstm": lambda: (nn.LSTM(8, 12), (torch.ones(5, 2, 8),)),
    "cells": lambda: (Cells(), (torch.ones(5, 8),)),
    "products": lambda: (Products(), (torch.ones(2, 4, 4),)),
    "resized": lambda: (Resized(), (torch.ones(2, 3, 4, 4),)),
    "embedding": lambda: (nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 3)), (torch.ones(2, 4, dtype=torch.long),)),
    "bilinear": lambda: (nn.Bilinear(3, 4, 5), (torch.ones(2, 3), torch.ones(2, 4))),
}
