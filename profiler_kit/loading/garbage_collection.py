"""Garbage collection while a step is observed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def older_objects_frozen() -> Iterator[None]:
    """Inside the block, the garbage collector searches only objects that the block creates.

    A count creates many records, so Python searches all objects of the process again and again, and most belong to imported
    packages. This takes a fifth of the time for a large model. Objects of the block are collected as before, since a model's
    tensors can be in reference cycles. Does nothing if collection is off, or if the caller has frozen objects itself.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
