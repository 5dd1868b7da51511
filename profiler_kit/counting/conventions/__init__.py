"""Definitions of MACs and FLOPs. A drop-in folder: one file with ``CONVENTION = Convention(...)`` adds a convention.

The kit's formulas always run: bytes, parameters and saved tensors come from them under every convention. A convention can
change MACs and FLOPs in three optional places: per op call (`op_cost`), per call of a torch function, which consists of
many ops (`function_recorder`), and once for the whole step (`adjust_step`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from profiler_kit import _family
from profiler_kit.counting.operands import OpFacts
from profiler_kit.errors import UsageError
from profiler_kit.records.counts import DEFAULT_CONVENTION, Cost, OpRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCall:
    """A call of an op after it ran. Read only the metadata of its tensors, since equal calls share one cost.

    `kit_cost`: the cost by the kit's formula; None without one.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    kit_cost: Cost | None


OpCost: TypeAlias = Callable[[OpCall], "Cost | None"]
Note: TypeAlias = Callable[[OpFacts], None]
AdjustStep: TypeAlias = Callable[[Sequence[OpRecord], bool], tuple[OpRecord, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """A definition of MACs and FLOPs.

    `sentence` describes it in every output. `unit`, `counts`, `backward` and `use` are its row in the documentation.
    `op_cost(call)` returns the cost of an op call with the kit's bytes; None is unknown. `function_recorder(note)` returns
    a context manager that is active during forward; it calls `note` to count work that is not an op, in the running module.
    `adjust_step(ops, training)` returns the ops of the step with their final costs.
    """

    name: str
    sentence: str
    unit: str
    counts: str
    backward: str
    use: str
    op_cost: OpCost | None = None
    function_recorder: Callable[[Note], AbstractContextManager[object]] | None = None
    adjust_step: AdjustStep | None = None

    def adjusted(self, ops: Sequence[OpRecord], training: bool) -> Sequence[OpRecord]:
        """The ops of the step with their final costs."""
        return ops if self.adjust_step is None else self.adjust_step(ops, training)


def with_work(cost: Cost | None, *, macs: int, flops: int | None = None) -> Cost:
    """A `Cost` with these MACs and FLOPs (default: 2 per MAC) and the bytes of `cost`."""
    return Cost(
        macs=macs,
        flops=2 * macs if flops is None else flops,
        read_bytes=cost.read_bytes if cost is not None else 0,
        write_bytes=cost.write_bytes if cost is not None else 0,
    )


@cache
def conventions() -> dict[str, Convention]:
    """Every convention by name, ``kit`` first."""
    members = [member.CONVENTION for member in _family.members(sys.modules[__name__])]
    ordered = sorted(members, key=lambda convention: (convention.name != DEFAULT_CONVENTION, convention.name))
    return {convention.name: convention for convention in ordered}


def find_convention(name: str) -> Convention:
    """The convention called `name`. Raises UsageError with the choices."""
    convention = conventions().get(name)
    if convention is None:
        raise UsageError(f"unknown convention {name!r}", hint=f"choose one of: {', '.join(conventions())}")
    return convention
