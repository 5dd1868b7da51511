"""Replacement kernels for meta and fake tensors, where torch rejects inputs that real kernels accept.

Currently grouped matrix products in dtypes other than bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor

_GROUPED_MM: Final = getattr(getattr(torch.ops.aten, "_grouped_mm", None), "default", None)  # from torch 2.7 on


def replacement_kernel(op: Any, args: Sequence[Any]) -> Callable[..., Any] | None:
    """The function to run instead of `op`; None, in nearly all cases, to run `op` itself."""
    if op is not _GROUPED_MM or op is None:
        return None
    a, b = args[:2]
    offsets = args[2] if len(args) > 2 else None
    if not (a.is_meta or isinstance(a, FakeTensor)) or a.dtype is torch.bfloat16 or a.dtype is not b.dtype:
        return None
    shape = _grouped_shape(a.shape, b.shape, None if offsets is None else offsets.shape[0])
    if shape is None or not a.is_floating_point():
        return None
    return lambda *_, **options: torch.empty(shape, dtype=options.get("out_dtype") or a.dtype, device=a.device)


def _grouped_shape(a: torch.Size, b: torch.Size, groups: int | None) -> tuple[int, ...] | None:
    """The shape of a grouped matrix product; None for operands that the op rejects."""
    ragged = (len(a) == 2) + (len(b) == 2)
    if not {len(a), len(b)} <= {2, 3} or (ragged > 0) != (groups is not None):
        return None
    if groups is not None and ragged == 2:  # the ragged dimension is contracted
        return (groups, a[0], b[1]) if a[1] == b[0] else None
    if a[-1] != b[-2]:
        return None
    if len(a) == 2:
        return (a[0], b[2]) if b[0] == groups else None
    if len(b) == 2:
        return (a[1], b[1]) if a[0] == groups else None
    return (a[0], a[1], b[2]) if a[0] == b[0] else None
