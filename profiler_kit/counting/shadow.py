"""Values for the model's own questions while it is counted on tensors that have none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from profiler_kit.target import Target
from profiler_kit.target.ownership import Call, wrapped_calls
from profiler_kit.target.values import shadowed


@contextmanager
def shadowing(target: Target) -> Iterator[None]:
    """While it lasts, every call of `target`'s model knows the values of small tensors that follow from known ones.

    The shadow is entered within the call, inside whatever watches the step's ops: it sees an op before they do, and what
    it computes on the side is not seen by them.
    """

    def around(path: str, call: Call) -> object:
        with shadowed():
            return call()

    with wrapped_calls({id(target.model): ""}, around):
        yield
