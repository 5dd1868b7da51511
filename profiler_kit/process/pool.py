"""Run a function over many items in several worker processes.

A worker is a fresh interpreter, not a fork: it shares no loaded modules, threads or device contexts with this process, and
it does not run a user's script again that lacks a ``__main__`` guard. If a worker dies, only its current item fails.
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
from profiler_kit.process.child import child_environment, tail
from profiler_kit.process.interrupts import deferred_interrupts
from profiler_kit.process.parent import exit_with_parent
from profiler_kit.process.started import GRACE_S, POLL_S, Command

Item = TypeVar("Item")
Answer = TypeVar("Answer")

LENGTH_PREFIX: Final = struct.Struct("<Q")  # before each message: its size in bytes
CHUNK_BYTES: Final = 1 << 20
LOG_BYTES: Final = 2000  # of a dead worker's log
USABLE_MEMORY_SHARE: Final = 0.8  # of the free memory; the rest stays available to other programs
SINGLE_THREAD_ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}  # the processes are the parallelism
WORKER_CODE: Final = "from profiler_kit.process.pool import serve_requests; serve_requests()"


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
    """Yield the result of `function` for each item, in the order of `items`, as soon as possible.

    `function` must be defined at the top level of a module. A KitError that it raises is yielded as the item's result, and
    so is a KitError for a worker that died. No worker is left after the iterator is exhausted, closed, or interrupted by
    an exception.

    Raises:
        RuntimeError: `function` raised any other exception, which is a bug; the message contains the traceback.
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
    process: Command
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
            worker.process.kill_group(signal.SIGKILL)
        for worker in self._workers:
            self._reap(worker)
        self._workers.clear()
        self._selector.close()

    def wait(self) -> dict[int, Any]:
        """Wait briefly and return the received answers by item index."""
        answers: dict[int, Any] = {}
        for key, _ in self._selector.select(POLL_S):
            worker = cast("_Worker", key.data)
            chunk = os.read(worker.process.stdout.fileno(), CHUNK_BYTES)
            if not chunk:
                answers.update(self._replace_dead(worker))
                continue
            worker.received += chunk
            if len(worker.received) >= LENGTH_PREFIX.size:
                (length,) = LENGTH_PREFIX.unpack_from(worker.received)
                if (
                    len(worker.received) == LENGTH_PREFIX.size + length
                ):  # one item at a time, so there is only one answer
                    answers[cast("int", worker.item)] = _decode_answer(bytes(worker.received[LENGTH_PREFIX.size :]))
                    worker.received.clear()
                    self._send_next(worker)
        return answers

    def _spawn(self) -> None:
        log = tempfile.TemporaryFile()  # noqa: SIM115 closed with its worker
        with deferred_interrupts():  # an interrupted start would leave a process that nothing stops
            try:
                popen = subprocess.Popen(
                    [sys.executable, "-c", WORKER_CODE],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    env={**child_environment(*sys.path), **SINGLE_THREAD_ENVIRONMENT},
                )
            except OSError as error:
                log.close()
                raise KitError(
                    f"cannot start a process: {error.strerror}", hint="read the files one at a time"
                ) from error
            worker = _Worker(Command(popen), log)
            self._workers.append(worker)
        self._selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        self._send_next(worker)

    def _send_next(self, worker: _Worker) -> None:
        """Send the next item to `worker`, or close its stdin if there is none."""
        worker.item = None
        if self._next == len(self._items):
            _pipe(worker.process.stdin).close()
            self._selector.unregister(worker.process.stdout)
            return
        worker.item, self._next = self._next, self._next + 1
        message = pickle.dumps((self._function, self._items[worker.item]))
        with contextlib.suppress(BrokenPipeError):  # the exit shows on the other pipe
            pipe = _pipe(worker.process.stdin)
            pipe.write(LENGTH_PREFIX.pack(len(message)) + message)
            pipe.flush()

    def _replace_dead(self, worker: _Worker) -> dict[int, Any]:
        """The failure of the item that `worker` was processing when it died. Starts a replacement if items are left."""
        self._selector.unregister(worker.process.stdout)
        self._workers.remove(worker)
        worker.process.kill_group(signal.SIGKILL)
        failure = _worker_failure(*self._reap(worker))
        if self._next < len(self._items):
            self._spawn()
        return {} if worker.item is None else {worker.item: failure}

    def _reap(self, worker: _Worker) -> tuple[int, str]:
        code = worker.process.exit_code(GRACE_S)
        log_tail = tail(worker.log, LOG_BYTES).strip()
        worker.process.close()
        worker.log.close()
        return -signal.SIGKILL if code is None else code, log_tail


def serve_requests() -> None:
    """Main loop of a worker: read items from stdin and write answers to stdout until stdin closes.

    Anything else that is printed goes to stderr.
    """
    exit_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and stops the workers
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while head := requests.read(LENGTH_PREFIX.size):
        (length,) = LENGTH_PREFIX.unpack(head)
        function, item = pickle.loads(requests.read(length))
        try:
            reply: tuple[str, Any] = ("answer", pickle.loads(function)(item))
        except KitError as error:
            reply = ("error", error)
        except Exception as error:  # noqa: BLE001 the parent raises it
            reply = ("bug", "".join(traceback.format_exception(error)))
        message = pickle.dumps(reply, protocol=pickle.HIGHEST_PROTOCOL)
        answers.write(LENGTH_PREFIX.pack(len(message)) + message)
        answers.flush()


def _decode_answer(message: bytes) -> Any:
    kind, reply = pickle.loads(message)
    if kind == "bug":
        raise RuntimeError(f"a worker process raised:\n{reply}")
    return reply


def _worker_failure(code: int, log_tail: str) -> KitError:
    ending = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
    if code == -signal.SIGKILL:
        return KitError(
            f"the process that read this file {ending}, probably because memory ran out",
            hint="read this file alone, or record a shorter trace",
        )
    last = log_tail.splitlines()[-1] if log_tail else "no output"
    return KitError(
        f"the process that read this file {ending}: {last}", hint="read this file alone to see its full log"
    )


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    return cast("IO[bytes]", pipe)  # `_spawn` always requests a pipe


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
