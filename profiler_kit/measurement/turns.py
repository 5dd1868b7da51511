"""Whether, and how, processes whose step waits for the host take turns.

On a shared host, the length of such a step changes by ten percent and more within tenths of a second, because of what other work
does to caches and cores. Fresh processes differ by far less (docs/measuring.md, Turns). A process is therefore measured in many
short turns, spread over several seconds, which alternate with those of the processes it is compared with.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from profiler_kit import process
from profiler_kit.measurement.visits import Round
from profiler_kit.measurement.worker_process import servers_together
from profiler_kit.records.jobs import Turns
from profiler_kit.records.runs import ConfigRun

TURN_S: Final = 0.05  # a longer one says hardly more: what lengthens a step lasts for some tenths of a second
# Of a process, and of all processes of a configuration in a round: more processes with fewer turns each are as precise, and show
# better how precise.
MIN_FULL_TURNS, MAX_TURNS = 12, 24
ALL_TURNS: Final = 128
MIN_TURNS: Final = 4  # a longer step is measured in one series
MIN_STEPS, MAX_STEPS = 3, 8  # of a turn
# From this length on, a turn may be a single step: refilling caches is a negligible part of it. Otherwise, its first step is not
# timed.
LONG_STEP_S: Final = 0.03
MAX_TOGETHER: Final = 24
# Of a configuration in a round: one shows no spread. A second one costs an import, which is too long for a short budget.
MIN_COPIES: Final = 2
MIN_BUDGET_S: Final = 30.0
CONTEXT_BYTES: Final = 700_000_000  # of device memory: a CUDA context, with kernels that libraries load
PROCESS_BYTES: Final = 2_000_000_000  # of host memory, with a CUDA context
USABLE_SHARE: Final = 0.7  # of the device's memory


def rounds(
    units: Sequence[Round],
    *,
    anchor: Round = (),
    once: Round = (),
    copies: int,
    first: ConfigRun,
    device: str,
    keeps: bool = True,
) -> list[Round]:
    """Rounds of processes for `units`, each of which is compared with `anchor` or within itself; empty if turns are not possible.

    `anchor` is part of each round. If all visits fit into memory together, there is one round, with up to `copies` processes of
    each visit. `once`: visits that need a single process. `first` is a measured run of the target: its step and its memory decide
    the turns and the size of a round. `keeps`: copies are further processes of their runs.
    """
    limit = processes_together(first, device)
    visits = [*anchor, *itertools.chain.from_iterable(units)]
    turns = [turns_of(first, visit.budget_s, MAX_TURNS) for visit in (*visits, *once)]
    if len(visits) < 2 or None in turns or any(visit.steps is not None for visit in visits):
        return []
    if len(visits) <= limit:
        copies = max(1, min(copies, (limit - len(once)) // len(visits)))
        again = [replace(visit, further=keeps) for _ in range(copies - 1) for visit in visits]
        together = [(*visits, *once, *again)]
    else:
        copies = 1
        room = max(1, (limit - len(anchor)) // max(map(len, units)))
        groups = [units[start : start + room] for start in range(0, len(units), room)]
        together = [(*anchor, *itertools.chain.from_iterable(group)) for group in groups]
        together += [(visit,) for visit in once]
    count = max(MIN_FULL_TURNS, min(MAX_TURNS, ALL_TURNS // copies))
    return [_with_turns(members, first, count) for members in together]


def _with_turns(members: Round, first: ConfigRun, count: int) -> Round:
    """`members` as one round, each a visit of its own.

    Processes that build at the same time, each with a thread for each core, take several times as long as one after another.
    Those whose results are hashed are not limited, because the number of threads may change the last bits of initial weights.
    """
    now_ns = time.time_ns()
    threads = max(1, process.usable_cores() // len(members))
    return tuple(
        replace(
            visit,
            turns=turns_of(first, visit.budget_s, count, round_ns=now_ns),
            building_threads=threads if visit.further else None,
        )
        for visit in members
    )


def copies_within(budget_s: float) -> int:
    """The number of processes of each configuration in a round of a session with this budget."""
    return max(MIN_COPIES if budget_s >= MIN_BUDGET_S else 1, servers_together())


def turns_of(first: ConfigRun, budget_s: float, most: int, *, round_ns: int = 0) -> Turns | None:
    """Up to `most` turns of a process with `budget_s` for its steps; None if the step of `first` is too long for several."""
    if first.step_ns is None:
        return None
    step_s = first.step_ns.median * 1e-9
    is_long = step_s >= LONG_STEP_S
    fewest = 1 if is_long else MIN_STEPS
    turn_s = max(TURN_S, fewest * step_s)
    count = min(most, int(budget_s / turn_s))
    if count < MIN_TURNS:
        return None
    return Turns(
        round_ns=round_ns,
        count=count,
        turn_ns=round(turn_s * 1e9),
        fewest=fewest,
        most=MAX_STEPS,
        untimed=0 if is_long else 1,
    )


def processes_together(first: ConfigRun, device: str) -> int:
    """The number of processes of the target of `first` that fit into memory at the same time; at least 1."""
    if not device.startswith("cuda"):
        return process.processes_in_memory(MAX_TOGETHER, first.peak_rss_bytes or PROCESS_BYTES)
    needed = CONTEXT_BYTES + (first.peak_reserved_bytes or 0)
    memory = first.environment.device_memory_bytes if first.environment is not None else None
    fitting = int(memory * USABLE_SHARE) // needed if memory is not None else 1
    return max(1, min(fitting, process.processes_in_memory(MAX_TOGETHER, PROCESS_BYTES)))
