"""What counts as work, by whose definition. A drop-in folder: one file with ``CONVENTION = Convention(...)`` adds one.

The kit's own formulas always run: bytes, parameters and saved tensors come from them, whatever the convention. A
convention may say something else about MACs and FLOPs, in three places, each optional: of an op call (`restate`), of calls of
torch's functions, which are many ops each (`watching`), and of the whole step once it is over (`settle`).
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
from profiler_kit.records.counts import DEFAULT_CONVENTION, Cost, CountPhase, OpRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCall:
    """An op that has just run: only its tensors' metadata may be looked at, since calls alike are asked about once.

    `own` is what the kit's formula says; None where it has none.
    """

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    own: Cost | None


Restate: TypeAlias = Callable[[OpCall], "Cost | None"]
Note: TypeAlias = Callable[[OpFacts], None]
Seen: TypeAlias = Callable[[OpFacts, "str | int", CountPhase], None]
Settle: TypeAlias = Callable[[Sequence[OpRecord], bool], tuple[OpRecord, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """A definition of MACs and FLOPs.

    `sentence` stands in every output; `unit`, `counts`, `backward` and `use` are its row in the documentation. `restate` gives
    the MACs and FLOPs of an op call, whose bytes stay (None: unknown). `watching` is entered around forward and is given what
    notes work beside the ops, at the running module. `settle` is given the ops of the step, and whether it trains, and returns
    them as they count. `seen` is told of every op of the step, its
    owner (as `Tracer` has it), and its phase.
    """

    name: str
    sentence: str
    unit: str
    counts: str
    backward: str
    use: str
    restate: Restate | None = None
    watching: Callable[[Note], AbstractContextManager[object]] | None = None
    settle: Settle | None = None
    seen: Seen | None = None

    def settled(self, ops: Sequence[OpRecord], training: bool) -> Sequence[OpRecord]:
        """The ops of the step as they count."""
        return ops if self.settle is None else self.settle(ops, training)


def work(own: Cost | None, *, macs: int, flops: int | None = None) -> Cost:
    """`own` with these MACs and FLOPs (by default two each) in place of its own; its bytes stay."""
    return Cost(
        macs=macs,
        flops=2 * macs if flops is None else flops,
        read_bytes=own.read_bytes if own is not None else 0,
        write_bytes=own.write_bytes if own is not None else 0,
    )


@cache
def conventions() -> dict[str, Convention]:
    """Every convention by its name, the kit's own first."""
    found = [member.CONVENTION for member in _family.members(sys.modules[__name__])]
    return {each.name: each for each in sorted(found, key=lambda each: (each.name != DEFAULT_CONVENTION, each.name))}


def by_name(name: str) -> Convention:
    """The convention called `name`. Raises UsageError naming the choices."""
    found = conventions().get(name)
    if found is None:
        raise UsageError(f"there is no convention {name!r}", hint=f"conventions: {', '.join(conventions())}")
    return found
