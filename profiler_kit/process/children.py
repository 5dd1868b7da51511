"""Follows a program into the processes that it starts by ``multiprocessing``, as ``torch.multiprocessing.spawn`` does."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import util
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

_ATTRIBUTE: Final = "_profiler_kit_child"


Start = Callable[..., Callable[[], None]]


class Child:
    """What a process of the program takes along: ``start(*arguments)`` is called in it before its own work, and its result after.

    It is an attribute of the process while that is started: a new interpreter gets it with the process, and a fork has it.
    """

    def __init__(self, start: Start, *arguments: Any) -> None:
        self._start, self._arguments = start, arguments
        self._end: Callable[[], None] | None = None
        util.register_after_fork(self, Child._after_fork)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self._start, *self._arguments)

    def begin(self) -> None:
        """Start, in the new process. An error of ours is a message: the process goes on."""
        try:
            self._end = self._end or self._start(*self._arguments)
            util.Finalize(None, self._end, exitpriority=100)
        except Exception as error:  # noqa: BLE001 whatever it is, it is not the program's
            sys.stderr.write(f"profiler_kit: a process is not recorded: {type(error).__name__}: {error}\n")

    def _after_fork(self) -> None:
        if getattr(multiprocessing.current_process(), _ATTRIBUTE, None) is self:
            self.begin()


def _arrived(start: Start, *arguments: Any) -> Child:
    child = Child(start, *arguments)
    child.begin()
    return child


@contextmanager
def followed_processes(start: Start, *arguments: Any, after_join: Callable[[], None]) -> Iterator[None]:
    """Call ``start(*arguments)`` in each process that is started inside the block, and `after_join` when one was waited for.

    Not in daemons, such as the workers of loaders. What `start` returns is called when the work of the process is over.
    """
    processes: Any = BaseProcess
    original_start, original_join = BaseProcess.start, BaseProcess.join

    def start_with_child(process: BaseProcess) -> None:
        if process.daemon:
            original_start(process)
            return
        setattr(process, _ATTRIBUTE, Child(start, *arguments))
        try:
            original_start(process)
        finally:
            delattr(process, _ATTRIBUTE)

    def join(process: BaseProcess, timeout: float | None = None) -> None:
        original_join(process, timeout)
        after_join()

    processes.start, processes.join = start_with_child, join
    try:
        yield
    finally:
        processes.start, processes.join = original_start, original_join


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Which processes that a program starts are recorded: of each rank the first one whose loop is found.

    They are files in the report folder `folder`, with the number of the program's process `program`.
    """

    folder: Path
    program: int

    def claim(self, rank: int) -> bool:
        """Whether this process is the first one of `rank`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(self._file(str(rank)), os.O_CREAT | os.O_EXCL))
            return True
        return False

    @property
    def exist(self) -> bool:
        """Whether a process is recorded."""
        return any(self.folder.glob(self._file("*").name))

    def end(self) -> None:
        """Note that a recording is over."""
        self._file("end").touch()

    @property
    def have_ended(self) -> bool:
        """Whether a recording is over."""
        return self._file("end").exists()

    def forget(self) -> None:
        """Remove the files, where that is possible: the program has ended."""
        for file in self.folder.glob(self._file("*").name):
            with suppress(OSError):
                file.unlink()

    def _file(self, name: str) -> Path:
        return self.folder / f".process_{self.program}_{name}"
