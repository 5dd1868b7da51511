"""Scratch as a device took it, in place of what rules say: found again by what an op was called with, or by its place."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from profiler_kit.loading.signature import op_name
from profiler_kit.memory.log import Log, Use
from profiler_kit.memory.scratch import exactly
from profiler_kit.records.counts import Phase
from profiler_kit.records.runs import OpMemory

MEASURED: Final = "measured on this device, in this configuration"

_Place = tuple[str, str, Phase]


class MeasuredScratch:
    """What each op of a probed step took for itself.

    `ops`: their names, which the simulation has to watch, whether there is a rule for them or not.
    """

    def __init__(self, calls: Iterable[OpMemory]) -> None:
        self._by_call: dict[tuple[str, str], int] = {}
        self._by_place: dict[_Place, list[int]] = {}
        names: set[str] = set()
        for op in calls:
            name, nbytes = op_name(op.op), op.workspace_bytes
            if op.call:
                key = (name, op.call)
                self._by_call[key] = max(nbytes, self._by_call.get(key, 0))
            self._by_place.setdefault(_place(name, op.path, op.phase), []).append(nbytes)
            names.add(name)
        self.ops: Final = frozenset(names)

    def of(self, use: Use, nth: int, calls: int) -> int | None:
        """The bytes of `use`, the `nth` of so many `calls` of its op by its module and phase; None where its like wasn't seen.

        The same call takes the same scratch. A call that is told otherwise (a whole recurrent layer) is known by its
        place, where as many were seen there.
        """
        found = self._by_call.get((use.op, use.call)) if use.call else None
        if found is not None:
            return found
        there = self._by_place.get(_place(use.op, use.path, use.phase), [])
        return there[nth] if len(there) == calls else None


def priced(log: Log, scratch: MeasuredScratch) -> Log:
    """`log` with the scratch that was measured; what a library keeps for good stays, as a probe finds it taken already."""
    steps = [bisect_right(log.steps, use.place) for use in log.uses]
    places = [(step, _place(use.op, use.path, use.phase)) for step, use in zip(steps, log.uses, strict=True)]
    calls = Counter(place for place, use in zip(places, log.uses, strict=True) if use.keeper is None)
    seen: Counter[tuple[int, _Place]] = Counter()
    uses = []
    for place, use in zip(places, log.uses, strict=True):
        if use.keeper is None:
            nbytes = scratch.of(use, seen[place], calls[place])
            seen[place] += 1
            if nbytes is not None:
                use = use._replace(scratch=exactly(nbytes, MEASURED))
        uses.append(use)
    return replace(log, uses=uses)


def _place(op: str, path: str, phase: Phase) -> _Place:
    return op, path, "backward" if phase == "recompute" else phase
