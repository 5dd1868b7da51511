"""Marks of tests that need more than the oldest torch. Does not import torch, for tests that run without it."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

import pytest


def _installed() -> tuple[int, ...]:
    try:
        return tuple(map(int, version("torch").split(".")[:2]))
    except PackageNotFoundError:
        return ()


needs_stacks = pytest.mark.skipif(
    sys.version_info >= (3, 13) and _installed() < (2, 8),
    reason="needs torch 2.8 on Python 3.13: before, the profiler crashes when it records stacks",
)
needs_sharding_on_cpu = pytest.mark.skipif(
    _installed() < (2, 7), reason="needs torch 2.7: before, fully_shard runs on a GPU only"
)
