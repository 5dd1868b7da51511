"""A function over many items, in a few processes of this very program's code.

A worker is a fresh interpreter, not a fork: what this process has loaded (torch, threads, a device) is in none of them, and a
script without a `__main__` guard is not run again. One that dies takes the item it was at with it, and no other.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, TypeVar, cast

from profiler_kit.errors import KitError
from profiler_kit.process.child import GRACE_S, POLL_S, child_environment, end_with_parent, kill_group, tail

Item = TypeVar("Item")
Answer = TypeVar("Answer")

LENGTH: Final = struct.Struct("<Q")  # before each message: how many bytes it has
CHUNK_BYTES: Final = 1 << 20
LOG_BYTES: Final = 2000  # of a dead worker's last words
SPARE: Final = 0.8  # of the memory that is free now: the rest is for whoever else is at work here
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # the processes are the parallelism
CODE: Final = "from profiler_kit.process.pool import answer; answer()"


def usable_cores() -> int:
    """How many cores this process may use."""
    # macOS and Windows have no affinity
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers_for(items: int, item_bytes: int, *, most: int | None = None) -> int:
    """How many processes to work `items` off in, when one holds up to `item_bytes` at a time: at least one.

    Bounded by the cores that this process may use, by the memory that is free (or that its container leaves it), and by `most`.
    """
    bounds = [items, usable_cores()]
    free = _free_bytes()
    if free is not None:
        bounds.append(int(free * SPARE) // max(item_bytes, 1))
    if most is not None:
        bounds.append(most)
    return max(1, min(bounds))


def in_processes(
    function: Callable[[Item], Answer], items: Sequence[Item], *, workers: int
) -> Iterator[Answer | KitError]:
    """What `function` (of a module's top level) returns for each item, in the items' order, each as soon as it can be told.

    A KitError that it raises is that item's answer, and so is one for a process that died at it. No process is left when the
    iterator is done, closed, or left by an exception, Ctrl-C for one.

    Raises RuntimeError, with the traceback in the process, where `function` raises anything else: that is a bug.
    """
    answers: dict[int, Answer | KitError] = {}
    next_item = 0
    with _Pool(function, items, min(workers, len(items))) as pool:
        while next_item < len(items):
            if next_item in answers:
                yield answers.pop(next_item)
                next_item += 1
            else:
                answers.update(pool.wait())


@dataclass(slots=True)
class _Worker:
    popen: subprocess.Popen[bytes]
    log: IO[bytes]
    item: int | None = None
    received: bytearray = field(default_factory=bytearray)


class _Pool:
    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any], workers: int) -> None:
        self._function = pickle.dumps(function)
        self._items = items
        self._next = 0
        self._count = workers
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> _Pool:
        try:
            for _ in range(self._count):
                self._spawn()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            kill_group(worker.popen, signal.SIGKILL)
        for worker in self._workers:
            self._reap(worker)
        self._workers.clear()
        self._selector.close()

    def wait(self) -> dict[int, Any]:
        """The answers that came within a moment, by their item's number."""
        answers: dict[int, Any] = {}
        for key, _ in self._selector.select(POLL_S):
            worker = cast("_Worker", key.data)
            chunk = os.read(_pipe(worker.popen.stdout).fileno(), CHUNK_BYTES)
            if not chunk:
                answers.update(self._lost(worker))
                continue
            worker.received += chunk
            if len(worker.received) >= LENGTH.size:
                (length,) = LENGTH.unpack_from(worker.received)
                if len(worker.received) == LENGTH.size + length:  # one question at a time, so one answer
                    answers[cast("int", worker.item)] = _opened(bytes(worker.received[LENGTH.size :]))
                    worker.received.clear()
                    self._ask(worker)
        return answers

    def _spawn(self) -> None:
        log = tempfile.TemporaryFile()  # noqa: SIM115 closed with its worker
        try:
            popen = subprocess.Popen(
                [sys.executable, "-c", CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**child_environment(*sys.path), **ONE_THREAD},
            )
        except OSError as error:
            log.close()
            raise KitError(
                f"a process cannot be started: {error.strerror}", hint="give the files one at a time"
            ) from error
        worker = _Worker(popen, log)
        self._workers.append(worker)
        self._selector.register(_pipe(popen.stdout), selectors.EVENT_READ, worker)
        self._ask(worker)

    def _ask(self, worker: _Worker) -> None:
        """Hands it the next item; one for which none is left is let go."""
        worker.item = None
        if self._next == len(self._items):
            _pipe(worker.popen.stdin).close()
            self._selector.unregister(_pipe(worker.popen.stdout))
            return
        worker.item, self._next = self._next, self._next + 1
        message = pickle.dumps((self._function, self._items[worker.item]))
        with contextlib.suppress(BrokenPipeError):  # its end is heard on the other pipe
            pipe = _pipe(worker.popen.stdin)
            pipe.write(LENGTH.pack(len(message)) + message)
            pipe.flush()

    def _lost(self, worker: _Worker) -> dict[int, Any]:
        """What is told of the item at which `worker` died; another takes its place."""
        self._selector.unregister(_pipe(worker.popen.stdout))
        self._workers.remove(worker)
        kill_group(worker.popen, signal.SIGKILL)
        death = _death(*self._reap(worker))
        if self._next < len(self._items):
            self._spawn()
        return {} if worker.item is None else {worker.item: death}

    def _reap(self, worker: _Worker) -> tuple[int, str]:
        try:
            code = worker.popen.wait(GRACE_S)
        except subprocess.TimeoutExpired:  # one that even SIGKILL can't reach, in a call to a dead file system
            code = -signal.SIGKILL
        words = tail(worker.log, LOG_BYTES).strip()
        for pipe in (worker.popen.stdin, worker.popen.stdout, worker.log):
            with contextlib.suppress(BrokenPipeError):
                _pipe(pipe).close()
        return code, words


def answer() -> None:
    """A worker's life: a question on stdin, its answer on stdout, until stdin ends. What else is printed goes to stderr."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to hear: it ends us
    questions = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while head := questions.read(LENGTH.size):
        (length,) = LENGTH.unpack(head)
        function, item = pickle.loads(questions.read(length))
        try:
            reply: tuple[str, Any] = ("answer", pickle.loads(function)(item))
        except KitError as error:
            reply = ("error", error)
        except Exception as error:  # noqa: BLE001 the parent raises it
            reply = ("bug", "".join(traceback.format_exception(error)))
        message = pickle.dumps(reply, protocol=pickle.HIGHEST_PROTOCOL)
        answers.write(LENGTH.pack(len(message)) + message)
        answers.flush()


def _opened(message: bytes) -> Any:
    kind, reply = pickle.loads(message)
    if kind == "bug":
        raise RuntimeError(f"in a process of the pool:\n{reply}")
    return reply


def _death(code: int, words: str) -> KitError:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
    if code == -signal.SIGKILL:
        return KitError(
            f"the process that read it {how}",
            hint="mostly that means too little memory: read it alone, or cut it first",
        )
    last = words.splitlines()[-1] if words else "it said nothing"
    return KitError(f"the process that read it {how}: {last}", hint="read it alone to see more")


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    return cast("IO[bytes]", pipe)  # `_spawn` always asks for it


def _free_bytes() -> int | None:
    """Memory that can be had without swapping; None where the system does not tell."""
    free_bytes = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free_bytes.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")))
    group = Path("/sys/fs/cgroup")  # version 2, as a container sees its own
    with contextlib.suppress(OSError, ValueError):
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            used = int((group / "memory.current").read_text())
            free_bytes.append(max(0, int(limit) - used))
    return min(free_bytes) if free_bytes else None
