"""Marks of tests that need more than the oldest torch."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")
needs_stacks = pytest.mark.skipif(
    sys.version_info >= (3, 13) and torch.__version__ < (2, 8),
    reason="needs torch 2.8 on Python 3.13: before, the profiler crashes when it records stacks",
)
needs_sharding_on_cpu = pytest.mark.skipif(
    torch.__version__ < (2, 7), reason="needs torch 2.7: before, fully_shard runs on a GPU only"
)
