"""The ranks of a distributed job."""

from __future__ import annotations

from torch import distributed


def distributed_rank() -> int | None:
    """The rank of this process; None outside of a distributed job."""
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else None
