"""Garbage collection while a step is observed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# New objects between two collections. Records of ops exceed Python's limit of hundreds again and again, those of a real step
# hardly ever.
_MAX_NEW_OBJECTS: Final = 20_000
# Python 3.12 starts with some hundred frozen objects. A caller that freezes the objects of its imports has many thousands.
_MAX_FROZEN_BY_PYTHON: Final = 1_000


@contextmanager
def older_objects_frozen() -> Iterator[None]:
    """Inside the block, the garbage collector searches only objects that the block creates, and less often.

    A count creates many records, so Python searches all objects of the process again and again, and most belong to imported
    packages. This takes a fifth of the time for a large model. Objects of the block are still collected, since a model's
    tensors can be in reference cycles. Does nothing if collection is off. Objects that the caller has frozen stay so.
    """
    if not gc.isenabled():
        yield
        return
    limit, *others = gc.get_threshold()
    has_frozen = gc.get_freeze_count() > _MAX_FROZEN_BY_PYTHON
    if not has_frozen:
        gc.freeze()
    gc.set_threshold(max(limit, _MAX_NEW_OBJECTS), *others)
    try:
        yield
    finally:
        gc.set_threshold(limit, *others)
        if not has_frozen:
            gc.unfreeze()
