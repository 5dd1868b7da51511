"""Values for the model's own questions while it runs on tensors that have none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from profiler_kit.loading.model import Target
from profiler_kit.loading.ownership import Call, wrapped_calls
from profiler_kit.loading.values import shadowed


@contextmanager
def shadowing(target: Target, *, in_backward: bool = True) -> Iterator[None]:
    """While it lasts, `target`'s model knows the values of small tensors that follow from known ones; a backward pass too.

    The shadow is entered within the call, inside whatever watches the step's ops: it sees an op before they do, and what
    it computes on the side is not seen by them. It is that of the last forward in backward, where a recomputation may ask
    for a mask again. Few do, and the shadow of half a step takes time: without `in_backward` such a question fails.
    """
    last = [shadowed()]
    backward = torch.Tensor.backward

    def around(path: str, call: Call) -> object:
        last[0] = shadowed()
        with last[0]:
            return call()

    def shadowed_backward(loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        with last[0].values:
            backward(loss, *args, **kwargs)  # type: ignore[no-untyped-call]

    if in_backward:
        torch.Tensor.backward = shadowed_backward  # type: ignore[method-assign, assignment]
    try:
        with wrapped_calls({id(target.model): ""}, around):
            yield
    finally:
        torch.Tensor.backward = backward  # type: ignore[method-assign]
