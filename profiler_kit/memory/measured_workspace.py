"""Measured workspace instead of the rules' estimates: matched by the op's arguments, or by module and phase."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from profiler_kit.memory.log import MemoryLog, WorkspaceUse
from profiler_kit.memory.workspace import exactly
from profiler_kit.meta.call_signatures import op_name
from profiler_kit.records.counts import Phase
from profiler_kit.records.runs import OpMemory

MEASURED: Final = "measured on this device, in this configuration"

_Place = tuple[str, str, Phase]  # op, path, phase


class MeasuredWorkspace:
    """The workspace of each op in a measured step.

    `ops`: the names of these ops. The simulation must record their calls, with or without a rule.
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

    def bytes_of(self, use: WorkspaceUse, index: int, calls: int) -> int | None:
        """The measured bytes of `use`; None without a match. `index`: its number among `calls` of its op, module and phase.

        Calls with equal arguments have equal workspace. A call without recorded arguments (a recurrent layer) matches by
        module and phase, if the same number of calls was measured there.
        """
        nbytes = self._by_call.get((use.op, use.call)) if use.call else None
        if nbytes is not None:
            return nbytes
        measured = self._by_place.get(_place(use.op, use.path, use.phase), [])
        return measured[index] if len(measured) == calls else None


def with_measured_workspace(log: MemoryLog, measured: MeasuredWorkspace) -> MemoryLog:
    """`log` with measured temporary workspace. Workspace of handles stays: it exists before the measurement."""
    steps = [bisect_right(log.steps, use.position) for use in log.uses]
    places = [(step, _place(use.op, use.path, use.phase)) for step, use in zip(steps, log.uses, strict=True)]
    calls = Counter(place for place, use in zip(places, log.uses, strict=True) if use.handle is None)
    next_index: Counter[tuple[int, _Place]] = Counter()
    uses = []
    for place, use in zip(places, log.uses, strict=True):
        if use.handle is None:
            nbytes = measured.bytes_of(use, next_index[place], calls[place])
            next_index[place] += 1
            if nbytes is not None:
                use = use._replace(workspace=exactly(nbytes, MEASURED))
        uses.append(use)
    return replace(log, uses=uses)


def _place(op: str, path: str, phase: Phase) -> _Place:
    return op, path, "backward" if phase == "recompute" else phase
