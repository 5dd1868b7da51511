"""The ranks of a distributed job."""

from __future__ import annotations

from torch import distributed


def distributed_rank() -> int | None:
    """The rank of this process; None outside of a distributed job."""
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else None


def job_size() -> int:
    """The number of ranks of this process's job; 1 outside of a distributed job."""
    return distributed.get_world_size() if distributed_rank() is not None else 1
