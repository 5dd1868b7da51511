"""What the host did, thread by thread, as stretches: what an idle device waited for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_kit.attribution.ownership import PHASE_NUMBERS, Host, Owned
from profiler_kit.attribution.spans import Spans, join, none, subtract, union
from profiler_kit.attribution.times import times
from profiler_kit.attribution.waits import Waits
from profiler_kit.records.traces import IdleCause
from profiler_kit.traces.table import NONE, Ids, Kind, Mask


def are_operators(host: Host) -> Mask:
    """Which host events are operators: not marks, which profilers of 2021 wrote as such."""
    itself: Mask = host.operator == np.arange(len(host.rows))
    return itself


def main_thread(owned: Owned) -> int:
    """The thread that runs the training loop: the one with most operators outside of autograd's nodes; NONE without any."""
    table, host = owned.table, owned.host
    runtime = table.kind[host.rows] == Kind.RUNTIME
    for mask in (are_operators(host) & (host.node == NONE), ~runtime, runtime):
        counts = np.bincount(table.thread[host.rows[mask]], minlength=1)
        if counts.any():
            return int(counts.argmax())
    return NONE


def stretches(owned: Owned, positions: Ids) -> Spans:
    """Where the host events at `positions`, all of one thread, run."""
    return union(*times(owned.table, owned.host.rows[positions]), ordered=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostStates:
    """What each thread did at any time. `thread`: each host event's; they ascend. `operators`: which events are some.

    `otherwise`: the cause where a thread did nothing that was recorded: Python, if anything of the program was recorded.
    """

    owned: Owned
    waits: Waits
    main: int
    thread: Ids
    operators: Mask
    otherwise: IdleCause

    def on_the_way(self, thread: int) -> list[tuple[IdleCause, Spans]]:
        """What happened while `thread` was on its way to a launch: what it did, or else what the main thread did.

        The stretches do not overlap; of two that did, what explains more was kept.
        """
        found: list[tuple[IdleCause, Spans]] = []
        taken = none()
        for number in dict.fromkeys((thread, self.main)):
            for cause, spans in self._of(number):
                found.append((cause, subtract(spans, taken)))
                taken = join(taken, spans)
        return found

    def _of(self, thread: int) -> list[tuple[IdleCause, Spans]]:
        low, high = np.searchsorted(self.thread, np.array((thread, thread + 1), self.thread.dtype)).tolist()
        waited = self.waits.thread == thread
        data = np.flatnonzero(self.owned.host.phase[low:high] == PHASE_NUMBERS["data"]) + low
        operators = np.flatnonzero(self.operators[low:high]) + low
        return [
            ("synchronisation", union(self.waits.start[waited], self.waits.end[waited], ordered=True)),
            ("waiting for data", stretches(self.owned, data.astype(np.int32))),
            ("op dispatch", stretches(self.owned, operators.astype(np.int32))),
        ]


def host_states(owned: Owned, waits: Waits) -> HostStates:
    """The threads of `owned`, with the host's `waits`."""
    table, host = owned.table, owned.host
    operators = are_operators(host)
    recorded = bool(operators.any()) or bool((table.kind[host.rows] == Kind.PYTHON).any())
    return HostStates(
        owned=owned,
        waits=waits,
        main=main_thread(owned),
        thread=table.thread[host.rows],
        operators=operators,
        otherwise="python" if recorded else "unknown",
    )
