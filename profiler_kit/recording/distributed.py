"""The ranks of a distributed job."""

from __future__ import annotations

import time
from typing import Final

from torch import distributed

COLLECTIVE_END_S: Final = 0.05  # a thread that waits for a core on a busy machine gets one in this time


def distributed_rank() -> int | None:
    """The rank of this process; None outside of a distributed job."""
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else None


def job_size() -> int:
    """The number of ranks of this process's job; 1 outside of a distributed job."""
    return distributed.get_world_size() if distributed_rank() is not None else 1


def let_collectives_end() -> None:
    """Wait until the threads of collectives on the CPU have written their last events, as far as can be known.

    Gloo announces a result before it closes the event of the collective. A profiler that stops between the two frees the
    memory that the thread then writes to.
    """
    if distributed_rank() is not None and "gloo" in distributed.get_backend_config():
        time.sleep(COLLECTIVE_END_S)
