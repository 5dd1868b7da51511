"""The ranks of a distributed job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import distributed

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


def distributed_rank() -> int | None:
    """The rank of this process; None outside of a distributed job."""
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else None


def job_size() -> int:
    """The number of ranks of this process's job; 1 outside of a distributed job."""
    return distributed.get_world_size() if distributed_rank() is not None else 1


def default_store() -> Store:
    """The key-value store by which the ranks of this process's job have met."""
    store: Store = distributed.distributed_c10d._get_default_store()
    return store


class CommonStart:
    """The step after which all ranks record, as they learn of a request at different times.

    A rank that begins a step earlier would wait for the traces of the others inside a step that these cannot finish without it.
    Rank 0 announces the next step once all are ready. None of them can finish that step before rank 0 takes part in it, so each
    has seen the announcement by then.
    """

    def __init__(self, name: str, store: Store, rank: int, ranks: int) -> None:
        self._store, self._rank, self._ranks = store, rank, ranks
        self._ready, self._start = f"profiler_kit/{name}/ready", f"profiler_kit/{name}/start"
        store.add(self._ready, 1)

    def is_due(self, step: int) -> bool:
        """Whether the recording begins now, after this rank has made `step` steps. Called after each step."""
        if self._rank == 0 and not self._store.check([self._start]):
            if self._store.add(self._ready, 0) == self._ranks:
                self._store.set(self._start, str(step + 1))
                self._store.check([self._start])  # the store has the announcement when it answers
            return False
        return self._store.check([self._start]) and step >= int(self._store.get(self._start))
