"""Run a function over many items in several processes.

A process is a fork of one that has imported the function's module (`forks`), or else a fresh interpreter: it shares no threads or
device contexts with this process, and it does not run a user's script again that lacks a ``__main__`` guard. If it dies, only its
item fails.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from profiler_kit.errors import KitError
from profiler_kit.process.child import Outcome, child_environment
from profiler_kit.process.forks import forking
from profiler_kit.process.slots import SlotCommand, run_in_slots
from profiler_kit.temporary_files import temporary_folder

Item = TypeVar("Item")
Answer = TypeVar("Answer")

USABLE_MEMORY_SHARE: Final = 0.8  # of the free memory; the rest stays available to other programs
SINGLE_THREAD_ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}  # the processes are the parallelism
TURN_S: Final = 0.01  # an item may take a fifth of a second
ITEM_MODULE: Final = "profiler_kit.process.item"


def usable_cores() -> int:
    """The number of cores that this process may use."""
    # macOS and Windows have no affinity
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers_for(items: int, item_bytes: int, *, limit: int | None = None) -> int:
    """The number of worker processes for `items` items that need up to `item_bytes` of memory each; at least 1.

    Limited by the usable cores, by the free memory of the machine or container, and by `limit`.
    """
    bounds = [processes_in_memory(items, item_bytes), usable_cores()]
    if limit is not None:
        bounds.append(limit)
    return max(1, min(bounds))


def processes_in_memory(items: int, item_bytes: int) -> int:
    """How many of `items` processes that need up to `item_bytes` each fit into the free memory; at least 1."""
    bounds = [items]
    free = _free_bytes()
    if free is not None:
        bounds.append(int(free * USABLE_MEMORY_SHARE) // max(item_bytes, 1))
    return max(1, min(bounds))


def in_processes(
    function: Callable[[Item], Answer], items: Sequence[Item], *, workers: int
) -> Iterator[Answer | KitError]:
    """Yield the result of `function` for each item, in the order of `items`, as soon as possible; `workers` at a time.

    `function` must be defined at the top level of a module. A KitError that it raises is yielded as the item's result, and
    so is a KitError for a process that died. No process is left after the iterator is exhausted, closed, or interrupted by
    an exception.

    Raises:
        RuntimeError: `function` raised any other exception, which is a bug; the message contains the traceback.
    """
    env = {**child_environment(*sys.path), **SINGLE_THREAD_ENVIRONMENT}
    module = getattr(function, "func", function).__module__  # of a partial function, that of the whole one
    answers: dict[int, Answer | KitError] = {}
    next_item = 0
    with temporary_folder("items") as folder, forking([ITEM_MODULE], env, imports=[module]):

        def command_of(numbered: tuple[int, Item], _: int) -> SlotCommand:
            file = folder / str(numbered[0])
            file.write_bytes(pickle.dumps((function, numbered[1])))
            return SlotCommand(argv=[sys.executable, "-m", ITEM_MODULE, str(file)], env=env)

        for (number, _), _, outcome in run_in_slots(enumerate(items), range(workers), command_of, TURN_S):
            answers[number] = outcome if isinstance(outcome, KitError) else _answer(outcome, folder / str(number))
            while next_item in answers:
                yield answers.pop(next_item)
                next_item += 1


def _answer(outcome: Outcome, file: Path) -> Any:
    """The answer that a process left in `file`, or why it left none. Raises RuntimeError for a bug."""
    if outcome.ok:
        kind, reply = pickle.loads(file.read_bytes())
        file.unlink()
        if kind == "bug":
            raise RuntimeError(f"a worker process raised:\n{reply}")
        return reply
    if outcome.signal_name == "SIGKILL":
        return KitError(
            "the process that read this file was ended by SIGKILL, probably because memory ran out",
            hint="read this file alone, or record a shorter trace",
        )
    return KitError(
        f"the process that read this file ended ({outcome.ending}): {outcome.last_log_line or 'no output'}",
        hint="read this file alone to see its full log",
    )


def _free_bytes() -> int | None:
    """Memory that is available without swapping; None if the system does not report it."""
    free_bytes = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free_bytes.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")))
    group = Path("/sys/fs/cgroup")  # cgroup version 2, as seen inside a container
    with contextlib.suppress(OSError, ValueError):
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            used = int((group / "memory.current").read_text())
            free_bytes.append(max(0, int(limit) - used))
    return min(free_bytes) if free_bytes else None
