"""Bounds of the work of a step: what its code does with values that the running kind of tensors does not have."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from profiler_kit.records.counts import BoundKind, CountBound
from profiler_kit.user_code.locations import display_path, user_frame

_collectors: list[dict[CountBound, None]] = []


@contextmanager
def collected_bounds() -> Iterator[dict[CountBound, None]]:
    """Collect the bounds that are noted inside the block, each once, in order."""
    bounds: dict[CountBound, None] = {}
    _collectors.append(bounds)
    try:
        yield bounds
    finally:
        _collectors.pop()


def note_bound(op: str, kind: BoundKind, reason: str) -> None:
    """Note that the work of `op`, which the model calls now, is a bound. Ignored in backward, which follows forward."""
    if not _collectors or torch._C._current_autograd_node() is not None:  # None outside backward
        return
    place = user_frame(sys._getframe())
    where = f"{display_path(place[0])}:{place[1]}" if place is not None else ""
    _collectors[-1].setdefault(CountBound(op=op, kind=kind, reason=reason, where=where))
