"""The tensors in whatever a model returns, and their elements piece by piece: looking at all of them costs little memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

import torch

PIECE_ELEMENTS: Final = 1 << 23  # in float64 64 MiB: a few of them are at hand even where a step fills the device


def tensors(value: object) -> Iterator[torch.Tensor]:
    """The strided tensors in `value`, in order: nested in containers and dataclasses, and what sparse and jagged ones hold."""
    if isinstance(value, torch.Tensor):
        yield from _strided(value.detach())
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors(getattr(value, field.name))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item)


def _strided(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    if tensor.layout is torch.sparse_coo:  # as it is: to coalesce adds up, which is not what the model did
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout is not torch.strided:
        yield tensor.values()
    elif tensor.is_complex():
        yield torch.view_as_real(tensor.resolve_conj())
    else:
        yield tensor.resolve_neg()


def pieces(*of: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """The elements of tensors of one shape, in logical order, as flat pieces that belong together; views where that can be."""
    first = of[0]
    if first.numel() <= PIECE_ELEMENTS:
        yield tuple(tensor.reshape(-1) for tensor in of)
    elif all(tensor.is_contiguous() for tensor in of):
        yield from zip(*(tensor.view(-1).split(PIECE_ELEMENTS) for tensor in of), strict=True)
    else:
        rows = max(1, PIECE_ELEMENTS * first.shape[0] // first.numel())
        for parts in zip(*(tensor.split(rows) for tensor in of), strict=True):
            yield from pieces(*(part[0] if rows == 1 else part for part in parts))
