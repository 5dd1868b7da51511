"""Counting a bare function, for tests: what its forward and its backward cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from profiler_kit.counting.module_calls import ModuleWatch
from profiler_kit.counting.totals import by_phase, uncounted_ops
from profiler_kit.counting.tracer import Tracer
from profiler_kit.records.counts import Cost, OpRecord


class Counted(NamedTuple):
    """The cost of a function's forward and backward, its op records, and the ops nobody knows."""

    forward: Cost
    backward: Cost
    ops: tuple[OpRecord, ...]
    uncounted: tuple[str, ...]


def t(*shape: int, grad: bool = False, dtype: torch.dtype = torch.float32, device: str = "meta") -> Tensor:
    """A tensor of this shape."""
    return torch.empty(shape, dtype=dtype, device=device, requires_grad=grad)


def counted(function: Callable[..., Any], *args: Any, backward: bool = False, **kwargs: Any) -> Counted:
    """What ``function(*args)`` costs, and with `backward` the gradients of its first output."""
    watch = ModuleWatch({}, {})
    tracer = Tracer(watch)
    with tracer:
        out = function(*args, **kwargs)
    if backward:
        first = out if isinstance(out, Tensor) else out[0]
        seed = torch.empty_like(first)
        tracer.set_phase("backward")
        with tracer:
            first.backward(seed)
    ops = tracer.records()
    phases = by_phase(ops)
    return Counted(phases["forward"], phases["backward"], ops, tuple(item.op for item in uncounted_ops(ops)))
