"""Run one command until it exits or is stopped.

A child gets its own session, and therefore its own process group. After `run` no process of that group is left and all
pipes and files are closed, whether the child exited, timed out, or was stopped by Ctrl-C or another exception.

`subprocess.Popen.poll` and `wait` share a lock, and an exception of a signal handler inside them can leave it locked, so that
the next call waits forever. This module asks the system instead, and collects a child only once, at the end.
"""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import os
import select
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from profiler_kit.errors import KitError
from profiler_kit.process.interrupts import deferred_interrupts

TAIL_LINES: Final = 40
TAIL_BYTES: Final = 64 * 1024
STDOUT_LIMIT_BYTES: Final = 64 * 1024 * 1024
GRACE_S: Final = 2.0  # from SIGTERM to SIGKILL: enough to remove temporary files
POLL_S: Final = 0.2  # delay before noticing the exit of a child whose own child keeps the pipe open
DRAIN_S: Final = 2.0
KILL_S: Final = 5.0  # a killed process may stay in a call to a device or a dead file system; do not wait for it forever
LINE_LIMIT: Final = 1024 * 1024
CHUNK_BYTES: Final = 64 * 1024
PR_SET_PDEATHSIG: Final = 1  # from linux/prctl.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The exit status and the output of a command.

    If a signal ended the command, `returncode` is negative and `signal_name` is set; with `timed_out` the signal came from
    us. `stdout` contains the first 64 MiB (`stdout_cut`: there was more), with undecodable bytes replaced. `log_tail`
    contains the last lines of stderr.
    """

    returncode: int
    signal_name: str | None
    timed_out: bool
    duration_ns: int
    stdout: str
    stdout_cut: bool
    log_tail: str

    @property
    def ok(self) -> bool:
        """Whether the command exited with status 0 before the timeout."""
        return self.returncode == 0 and not self.timed_out

    @property
    def ending(self) -> str:
        """The signal or exit status: ``SIGKILL`` or ``exit status 3``."""
        return self.signal_name or f"exit status {self.returncode}"

    @property
    def last_log_line(self) -> str:
        """The last non-empty line of the log; empty if there is none."""
        return next((line.strip() for line in reversed(self.log_tail.splitlines()) if line.strip()), "")


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    stdin_text: str | None = None,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Outcome:
    """Run `argv` until it exits or `timeout_s` seconds have passed, and return its outcome.

    `env` replaces the whole environment; None inherits it. stdin contains `stdin_text`, or is empty. stderr goes to the
    file `log`, which is overwritten, or to a temporary file. `on_line` is called in this thread with each line of stdout
    as it arrives, without the newline.

    On timeout the process group gets SIGTERM, and SIGKILL two seconds later. An exception in the meantime
    (KeyboardInterrupt, or one from `on_line`) stops the group the same way and is raised again. Processes that the child
    leaves behind in its group are killed when the child exits.

    Raises:
        KitError: the command cannot be started, or `log` cannot be written.
    """
    with start_child(argv, cwd=cwd, env=env, stdin_text=stdin_text, log=log, on_line=on_line) as child:
        return child.finish(timeout_s)


@contextlib.contextmanager
def start_child(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin_text: str | None = None,
    accepts_line: bool = False,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Iterator[Child]:
    """Start `argv` as a child process; its process group is stopped when the block is left.

    Arguments as for `run`. The child runs in the background until `Child.finish` waits for it. With `talks` it gets a
    pipe as stdin, for `Child.send_line`.

    Raises:
        KitError: as for `run`.
    """
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(_log_file(log))
        stdin = subprocess.PIPE if accepts_line else _stdin_file(stack, stdin_text)
        with deferred_interrupts():  # an interrupted start would leave a process that nothing stops
            child = Child(_start(argv, cwd, env, stdin, errors), _Sink(on_line), errors)
            stack.callback(child.end)
        yield child


def child_environment(*paths: str) -> dict[str, str]:
    """This process's environment, with PYTHONPATH set to this installation of the package followed by `paths`."""
    package_parent = str(Path(__file__).resolve().parent.parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [package_parent, *paths]))}


def exit_with_parent() -> None:
    """Let the system kill this process when its parent process exits. Call it first in a child.

    A killed parent cannot stop its children, and a hanging child would block the device forever. Works on Linux only;
    on other systems a child notices when it next reads from or writes to its parent.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # the C library cannot be loaded this way, or lacks the call
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


class Child:
    """A running command. Created by `start_child`."""

    def __init__(self, popen: subprocess.Popen[bytes], sink: _Sink, errors: IO[bytes]) -> None:
        self._popen = popen
        self._sink = sink
        self._errors = errors
        self._start_ns = time.monotonic_ns()
        self._finished = False

    def send_line(self, line: str) -> None:
        """Write `line` to the child's stdin and close stdin. Does nothing if the child has exited; `finish` reports that."""
        pipe = cast("IO[bytes]", self._popen.stdin)
        with contextlib.suppress(BrokenPipeError):
            pipe.write(f"{line}\n".encode())
            pipe.flush()
        with contextlib.suppress(BrokenPipeError):
            pipe.close()

    def has_exited(self) -> bool:
        """Whether the command has ended; `finish` returns its outcome."""
        return exit_code(self._popen) is not None

    def finish(self, timeout_s: float | None = None) -> Outcome:
        """Wait at most `timeout_s` seconds for the exit and return the outcome; stop the child on timeout or on an exception."""
        deadline_ns = None if timeout_s is None else time.monotonic_ns() + round(timeout_s * 1e9)
        code = _wait_for_exit(self._popen, self._sink, deadline_ns)
        timed_out = code is None
        if code is None:
            code = _stop_group(self._popen)
        duration_ns = time.monotonic_ns() - self._start_ns
        kill_group(self._popen, signal.SIGKILL)
        _drain(self._popen, self._sink)
        close(self._popen)
        self._finished = True
        return Outcome(
            returncode=code,
            signal_name=_signal_name(-code) if code < 0 else None,
            timed_out=timed_out,
            duration_ns=duration_ns,
            stdout=self._sink.text(),
            stdout_cut=self._sink.cut,
            log_tail=tail(self._errors),
        )

    def end(self) -> None:
        """Stop the child, unless `finish` has returned."""
        if not self._finished:
            self._finished = True
            try:
                _stop_group(self._popen)
            finally:
                close(self._popen)


class _Sink:
    """Stores the first bytes of stdout and passes complete lines to a callback."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self.cut = False
        self._on_line = on_line
        self._chunks: list[bytes] = []
        self._stored_bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line = ""

    def feed(self, chunk: bytes) -> None:
        free_bytes = STDOUT_LIMIT_BYTES - self._stored_bytes
        if len(chunk) > free_bytes:
            self.cut = True
        if free_bytes > 0:
            self._chunks.append(chunk[:free_bytes])
            self._stored_bytes += len(self._chunks[-1])
        self._emit_lines(self._decoder.decode(chunk))

    def end(self) -> None:
        """Emit the last line if it has no newline."""
        self._emit_lines(self._decoder.decode(b"", final=True))
        if self._on_line is not None and self._line:
            self._on_line(self._line)

    def text(self) -> str:
        return b"".join(self._chunks).decode("utf-8", errors="replace")

    def _emit_lines(self, text: str) -> None:
        if self._on_line is None:
            return
        *lines, self._line = (self._line + text).split("\n")
        if len(self._line) > LINE_LIMIT:  # a megabyte without a newline is not progress: do not buffer it
            lines.append(self._line)
            self._line = ""
        for line in lines:
            self._on_line(line.removesuffix("\r"))


@contextlib.contextmanager
def _log_file(log: Path | None) -> Iterator[IO[bytes]]:
    if log is None:
        with tempfile.TemporaryFile() as file:
            yield file
        return
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log_file = log.open("w+b")
    except OSError as error:
        raise KitError(
            f"cannot write the log: {error.strerror}", where=str(log), hint="use a folder that is writable"
        ) from error
    with log_file as file:
        yield file


def _stdin_file(stack: contextlib.ExitStack, text: str | None) -> IO[bytes] | int:
    """A file with `text` as stdin. Unlike a pipe, it cannot block the parent if the child never reads it."""
    if text is None:
        return subprocess.DEVNULL
    file = tempfile.TemporaryFile()  # noqa: SIM115 the caller's stack closes it
    stack.callback(file.close)
    file.write(text.encode())
    file.seek(0)
    return file


def _start(
    argv: Sequence[str | os.PathLike[str]],
    cwd: str | Path | None,
    env: Mapping[str, str] | None,
    stdin: IO[bytes] | int,
    errors: IO[bytes],
) -> subprocess.Popen[bytes]:
    command = [os.fspath(word) for word in argv]
    try:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    except OSError as error:
        raise KitError(
            f"cannot be started: {error.strerror}",
            where=str(error.filename or command[0]),
            hint="check that the program and its working directory exist and are accessible",
        ) from error


def _wait_for_exit(child: subprocess.Popen[bytes], sink: _Sink, deadline_ns: int | None) -> int | None:
    """Pass stdout to `sink` until `child` exits; its exit code, or None if the deadline passes first."""
    pipe = cast("IO[bytes]", child.stdout)
    with selectors.DefaultSelector() as selector, _exit_events(child) as exit_events:
        selector.register(pipe, selectors.EVENT_READ)
        if exit_events is not None:
            selector.register(exit_events, selectors.EVENT_READ)
        while (code := exit_code(child)) is None:
            left_s = POLL_S if deadline_ns is None else (deadline_ns - time.monotonic_ns()) / 1e9
            if left_s <= 0:
                return None
            for key, _ in selector.select(min(POLL_S, left_s)):
                if key.fileobj is not pipe:
                    continue
                chunk = os.read(pipe.fileno(), CHUNK_BYTES)
                if chunk:
                    sink.feed(chunk)
                else:  # stdout is closed: the child exits soon, or continues without stdout
                    selector.unregister(pipe)
        return code


@contextlib.contextmanager
def _exit_events(child: subprocess.Popen[bytes]) -> Iterator[int | None]:
    """A descriptor that becomes readable when `child` exits; None where the system has none."""
    descriptor = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a kernel before 5.3, a container that forbids the call, no free descriptor
            descriptor = os.pidfd_open(child.pid)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def exit_code(child: subprocess.Popen[bytes], timeout_s: float = 0.0) -> int | None:
    """The exit code of `child`, negative for a signal; None if it still runs after `timeout_s` seconds.

    The system keeps the child's id until `close`, so that `kill_group` cannot reach an unrelated process.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        code = _exit_code(child)
        if code is not None or (left_s := deadline - time.monotonic()) <= 0:
            return code
        with _exit_events(child) as exit_events:
            select.select([exit_events] if exit_events is not None else [], [], [], min(POLL_S, left_s))


def _exit_code(child: subprocess.Popen[bytes]) -> int | None:
    if child.returncode is not None or not hasattr(os, "waitid"):  # macOS has it from Python 3.13 on
        return child.poll()
    try:
        status = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # collected by the user's code, which waited for any child; as Popen, assume success
        return 0
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def close(child: subprocess.Popen[bytes]) -> None:
    """Collect `child`, which has exited, and close its pipes. A child that cannot be killed is left to the system."""
    code = exit_code(child)
    if child.returncode is None and code is not None:
        child.returncode = code  # first, so that an interruption cannot lead to a signal for an id that is free again
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child.pid, os.WNOHANG)
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _drain(child: subprocess.Popen[bytes], sink: _Sink) -> None:
    """Read the rest of the pipe, for a limited time: a process outside the group may keep the pipe open forever."""
    pipe = cast("IO[bytes]", child.stdout)
    until_ns = time.monotonic_ns() + round(DRAIN_S * 1e9)
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while (left_ns := until_ns - time.monotonic_ns()) > 0 and selector.select(left_ns / 1e9):
            chunk = os.read(pipe.fileno(), CHUNK_BYTES)
            if not chunk:
                break
            sink.feed(chunk)
    sink.end()


def _stop_group(child: subprocess.Popen[bytes]) -> int:
    """Stop the process group: SIGTERM, a grace period, SIGKILL. A second Ctrl-C ends the grace period. Returns the exit code."""
    try:
        kill_group(child, signal.SIGTERM)
        exit_code(child, GRACE_S)
    finally:
        kill_group(child, signal.SIGKILL)
        code = exit_code(child, KILL_S)
    return code if code is not None else -signal.SIGKILL


def kill_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send the signal `number` to the process group of `child`, if it still has processes."""
    # The system does not reuse a group id while the group has a process. macOS reports EPERM for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def tail(log: IO[bytes], limit_bytes: int = TAIL_BYTES) -> str:
    """The last lines of `log`: at most `TAIL_LINES` lines and `limit_bytes` bytes."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - limit_bytes))
    return "\n".join(log.read(limit_bytes).decode("utf-8", errors="replace").splitlines()[-TAIL_LINES:])
