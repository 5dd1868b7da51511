"""Runs commands, as many at a time as there are slots: cores, or devices that take one command each."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from profiler_kit.errors import KitError
from profiler_kit.process.child import Child, Outcome, start_child

Item = TypeVar("Item")
Slot = TypeVar("Slot")

TURN_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCommand:
    """A command to run: as for `run`."""

    argv: Sequence[str | os.PathLike[str]]
    cwd: str | Path | None = None
    env: Mapping[str, str] | None = None
    timeout_s: float | None = None


@dataclass(slots=True)
class _Running(Generic[Item, Slot]):
    item: Item
    slot: Slot
    child: Child
    block: contextlib.ExitStack
    until_s: float | None


def run_in_slots(
    items: Iterable[Item],
    slots: Sequence[Slot],
    command_of: Callable[[Item, Slot], SlotCommand],
    turn_s: float = TURN_S,
) -> Generator[tuple[Item, Slot, Outcome | KitError], None, None]:
    """Run the command of every item in a free slot, and yield each item with its slot and outcome when it ends.

    An item is requested when a slot is free. A command that cannot be started is a KitError. When the iterator is closed, or
    after an exception such as KeyboardInterrupt, all running commands are stopped. `turn_s`: spent reading the output of one
    running command before the next one's turn.
    """
    waiting = iter(items)
    free = list(slots)
    running: list[_Running[Item, Slot]] = []
    with contextlib.ExitStack() as stack:
        while True:
            while free:
                item = next(waiting, _NONE)
                if isinstance(item, _Nothing):
                    break
                slot = free.pop(0)
                command = command_of(item, slot)
                block = stack.enter_context(contextlib.ExitStack())
                try:
                    child = block.enter_context(start_child(command.argv, cwd=command.cwd, env=command.env))
                except KitError as error:
                    free.append(slot)
                    yield item, slot, error
                    continue
                until_s = None if command.timeout_s is None else time.monotonic() + command.timeout_s
                running.append(_Running(item, slot, child, block, until_s))
            if not running:
                return
            for entry in list(running):
                is_late = entry.until_s is not None and time.monotonic() > entry.until_s
                if not (entry.child.exits_within(turn_s) or is_late):
                    continue
                outcome = entry.child.finish(0.0)
                entry.block.close()
                running.remove(entry)
                free.append(entry.slot)
                yield entry.item, entry.slot, outcome


class _Nothing:
    """The end of the items, which may be anything."""


_NONE: Final = _Nothing()
