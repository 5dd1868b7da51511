"""Runs a command in a fork of this process that must hand over its result. Without a result, the command has failed.

User code can end its process in ways that no handler sees: a C library calls ``exit``, a kernel gets a tensor without memory,
the system kills it. The parent runs no user code, so it always reports an ending:

    result = supervise(command)  # bytes, or an Ending: "ended with exit status 0" at net.py:41 while counting

The fork happens before torch or a thread exists. The child describes where it is in memory that both share.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, NoReturn

from profiler_kit.process.ending import ChildReport, Ending, write_stack_at_exit
from profiler_kit.process.parent import adopt_orphans, end_adopted, exit_with_parent

CLEANUP_S: Final = 5.0  # for exit handlers, after the result is handed over
OVERDUE_S: Final = 5.0  # from the time limit inside the child, which raises an exception, to the end of the child
ABORT_S: Final = 5.0  # to write the stack, on a busy machine
KILLS_AFTER: Final = 3  # signals to this process; fewer ask the child to clean up
POLL_S: Final = 0.5
SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_SIZE: Final = struct.Struct("!Q")  # of the result, before it


final_checks: list[Callable[[], None]] = []  # run before a result is handed over; they raise KitError
_current: ChildReport | None = None  # in a supervised process: its own report


def is_supervised() -> bool:
    """Whether this process is the child of `supervise`."""
    return _current is not None


def note_stage(text: str) -> None:
    """In a supervised process: note the current activity, such as ``counting``. Elsewhere nothing happens."""
    if _current is not None:
        _current.stage = text


def end_after(seconds: float) -> None:
    """In a supervised process: let the parent end it in `seconds`, outside of the blocks of `ended_after`."""
    if _current is not None:
        _current.limit_s = seconds
        _current.deadline_ns = time.monotonic_ns() + round(seconds * 1e9)


@contextlib.contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """In a supervised process: let the parent end it if the block runs for `OVERDUE_S` longer than `seconds`.

    The block should have its own time limit, which raises an exception. Native code that never returns does not see it.
    """
    report = _current
    if report is None:
        yield
        return
    earlier = report.deadline_ns, report.limit_s
    report.limit_s = seconds
    report.deadline_ns = time.monotonic_ns() + round((seconds + OVERDUE_S) * 1e9)
    try:
        yield
    finally:
        report.deadline_ns, report.limit_s = earlier


def supervise(command: Callable[[], bytes]) -> bytes | Ending:
    """Run `command` in a child process and return its result, or how it ended without one.

    SIGINT, SIGTERM and SIGHUP go to the child, which cleans up and hands over a result; the third one kills it. The child
    ends with this process. On Linux, processes that it leaves behind are killed. Needs ``os.fork``.
    """
    report = ChildReport()
    read, write = os.pipe()
    others = adopt_orphans()
    parent = os.getpid()
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # the system would forget the child's exit status
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until both processes have their handlers
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _serve(command, report, write, parent, mask)
    os.close(write)
    try:
        return _Supervisor(pid, read, report, others).result(mask)
    finally:
        os.close(read)


class _Supervisor:
    """The parent's side: reads the result, passes signals on, ends late and remaining processes."""

    def __init__(self, pid: int, read: int, report: ChildReport, others: frozenset[int]) -> None:
        self._pid, self._read, self._report, self._others = pid, read, report, others
        self._data = bytearray()
        self._code: int | None = None
        self._overdue = False
        os.set_blocking(read, False)

    def result(self, mask: set[signal.Signals | int]) -> bytes | Ending:
        """The child's result, or its ending. Returns when no process is left. `mask`: the blocked signals from then on."""
        wake, alarm = os.pipe()
        os.set_blocking(alarm, False)
        os.set_blocking(wake, False)
        earlier_fd = signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        earlier = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGCHLD)}
        for number in SIGNALS:
            if earlier[number] is not signal.SIG_IGN:
                signal.signal(number, self._forward)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the signal wakes the loop
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            while self._message() is None and not self._has_ended():
                self._end_if_late()
                select.select([self._read, wake], [], [], POLL_S)
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 4096)
                self._receive()
            self._receive()  # its output before it ended
            self._wait_for_exit()
        finally:
            self._kill(signal.SIGKILL)
            end_adopted(self._others)
            for number, handler in earlier.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(earlier_fd)
            os.close(wake)
            os.close(alarm)
        message = self._message()
        return message if message is not None else self._ending()

    def _message(self) -> bytes | None:
        """The result, once it is complete."""
        if len(self._data) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._data)
        return bytes(self._data[_SIZE.size : _SIZE.size + size]) if len(self._data) >= _SIZE.size + size else None

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._read, 1 << 20):
                self._data += chunk

    def _has_ended(self) -> bool:
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code is not None

    def _wait_for_exit(self) -> None:
        """Let the child run its exit handlers, for a limited time."""
        until_s = time.monotonic() + CLEANUP_S
        while not self._has_ended() and time.monotonic() < until_s:
            time.sleep(0.002)

    def _kill(self, number: signal.Signals) -> None:
        if not self._has_ended():
            os.kill(self._pid, number)
            if number == signal.SIGKILL:
                self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self._report.signals += 1
        if not self._has_ended():
            os.kill(self._pid, signal.SIGKILL if self._report.signals >= KILLS_AFTER else number)

    def _end_if_late(self) -> None:
        deadline_ns = self._report.deadline_ns
        if not deadline_ns or time.monotonic_ns() < deadline_ns:
            return
        self._overdue = True
        self._kill(signal.SIGABRT)  # writes the stack
        until_s = time.monotonic() + ABORT_S
        while not self._has_ended() and time.monotonic() < until_s:
            time.sleep(0.01)
        self._kill(signal.SIGKILL)

    def _ending(self) -> Ending:
        file, line, function = self._report.user_frame() or (None, 0, "")
        return Ending(
            status=self._code if self._code is not None else -signal.SIGKILL,
            stage=self._report.stage,
            file=file,
            line=line,
            function=function,
            limit_s=self._report.limit_s if self._overdue else None,
        )


def _serve(
    command: Callable[[], bytes], report: ChildReport, write: int, parent: int, mask: set[signal.Signals | int]
) -> NoReturn:
    """The child: run `command`, hand over its result, run the exit handlers, and end. User code may have replaced anything."""
    global _current
    pid, end, current_pid, write_bytes = os.getpid(), os._exit, os.getpid, os.write
    try:
        exit_with_parent(parent)
        _current = report
        if report.stack is not None:
            faulthandler.enable(report.stack, all_threads=False)
            handler = write_stack_at_exit(report.stack, pid)  # noqa: F841 the C library keeps no reference
        _handle_signals_of_parent(report)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        result = command()
        if current_pid() != pid:
            end(0)  # a copy that user code forked
        remaining = memoryview(_SIZE.pack(len(result)) + result)
        while remaining:
            remaining = remaining[write_bytes(write, remaining) :]
        atexit._run_exitfuncs()
        sys.stderr.flush()
    except BaseException as error:  # noqa: BLE001 the parent reports that there is no result
        report.stage = f"{report.stage}; {type(error).__name__}"
        end(1)
    end(0)


def _handle_signals_of_parent(report: ChildReport) -> None:
    """Call the handlers for signals of the parent only, once for each.

    A Ctrl-C arrives twice, from the terminal and from the parent. A signal that user code sends does not interrupt the command.
    """
    handled = 0
    handlers = {number: signal.getsignal(number) for number in SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal handled
        handler = handlers[signal.Signals(number)]
        if report.signals > handled and callable(handler):
            handled = report.signals
            handler(number, frame)

    for number, handler in handlers.items():
        if callable(handler):
            signal.signal(number, handle)
