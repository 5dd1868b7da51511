"""The tensors in a model's output, and their elements piece by piece, so that reading them needs little memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

import torch

PIECE_ELEMENTS: Final = 1 << 23  # 64 MiB in float64; a few of these are available even if a step fills the device


def tensors(value: object) -> Iterator[torch.Tensor]:
    """The strided tensors in `value`, in order: in nested containers and dataclasses, and inside sparse and jagged tensors."""
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
    if tensor.layout is torch.sparse_coo:  # not coalesced: that would add values up
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout is not torch.strided:
        yield tensor.values()
    elif tensor.is_complex():
        yield torch.view_as_real(tensor.resolve_conj())
    else:
        yield tensor.resolve_neg()


def pieces(*values: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """The elements of `values`, tensors of one shape, in logical order as matching flat pieces; views where possible."""
    first = values[0]
    if first.numel() <= PIECE_ELEMENTS:
        yield tuple(tensor.reshape(-1) for tensor in values)
    elif all(tensor.is_contiguous() for tensor in values):
        yield from zip(*(tensor.view(-1).split(PIECE_ELEMENTS) for tensor in values), strict=True)
    else:
        rows = max(1, PIECE_ELEMENTS * first.shape[0] // first.numel())
        for parts in zip(*(tensor.split(rows) for tensor in values), strict=True):
            yield from pieces(*(part[0] if rows == 1 else part for part in parts))
