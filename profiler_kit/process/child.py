"""Run one command until it exits or is stopped.

A child gets its own session, and therefore its own process group. After `run` no process of that group is left and all
pipes and files are closed, whether the child exited, timed out, or was stopped by Ctrl-C or another exception.
"""

from __future__ import annotations

import codecs
import contextlib
import os
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
from profiler_kit.process.ending import deferred_interrupts
from profiler_kit.process.forks import start_fork, wait_for_server
from profiler_kit.process.started import POLL_S, Command, Started

TAIL_LINES: Final = 40
TAIL_BYTES: Final = 64 * 1024
STDOUT_LIMIT_BYTES: Final = 64 * 1024 * 1024
DRAIN_S: Final = 2.0
PIPE_BYTES: Final = 1024 * 1024  # more than a pipe holds, so that what the child has written is read however late it is
LINE_LIMIT: Final = 1024 * 1024
CHUNK_BYTES: Final = 64 * 1024
_PACKAGE_PARENT: Final = str(Path(__file__).resolve().parent.parent.parent)
_WITH_PARENT: Final = "from profiler_kit.process import exit_with_parent; exit_with_parent()"


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
    def error(self) -> tuple[str, str]:
        """The message and the hint of the last error that a command of this package printed; else the last line or the ending."""
        lines = self.log_tail.splitlines()
        at = next((index for index in reversed(range(len(lines))) if lines[index].startswith("error: ")), None)
        if self.signal_name is not None:
            return f"ended by {self.signal_name}", ""
        if at is None:
            return self.last_log_line or self.ending, ""
        hint = next((line for line in lines[at:] if line.startswith("hint: ")), "")
        return lines[at].removeprefix("error: "), hint.removeprefix("hint: ")

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

    On timeout the process group gets SIGTERM, and SIGKILL five seconds later. An exception in the meantime
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

    Arguments as for `run`. The child runs in the background until `Child.finish` waits for it. With `accepts_line` it
    gets a pipe as stdin, for `Child.send_line`.

    Within a block of `forking`, a worker is a fork.

    Raises:
        KitError: as for `run`.
    """
    command = [os.fspath(word) for word in argv]
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(_log_file(log))
        wait_for_server(command, cwd=cwd, env=env)
        stdin = subprocess.PIPE if accepts_line else _stdin_file(stack, stdin_text)
        with deferred_interrupts():  # an interrupted start would leave a process that nothing stops
            started = start_fork(command, cwd=cwd, env=env, stdin=stdin, errors=errors)
            child = Child(started or _start(command, cwd, env, stdin, errors), _Sink(on_line), errors)
            stack.callback(child.end)
        yield child


def own_command(*words: str) -> list[str]:
    """The command of a process that runs `words` as this package's command line, and that ends with this process.

    A sweep that is killed leaves nothing behind that would disturb the measurements of the next one. As in a console script,
    the working directory is not on the search path: a file there must not replace a library.
    """
    path = f"import sys; sys.path[:] = [{_PACKAGE_PARENT!r}, *filter(None, sys.path)]"
    return [sys.executable, "-c", f"{path}; {_WITH_PARENT}; from profiler_kit.cli import entry; entry()()", *words]


def child_environment(*paths: str) -> dict[str, str]:
    """This process's environment, with PYTHONPATH set to this installation of the package followed by `paths`."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [_PACKAGE_PARENT, *paths]))}


class Child:
    """A running command. Created by `start_child`."""

    def __init__(self, started: Started, sink: _Sink, errors: IO[bytes]) -> None:
        self._started = started
        self._sink = sink
        self._errors = errors
        self._start_ns = time.monotonic_ns()
        self._finished = False

    def send_line(self, line: str, *, is_last: bool = True) -> None:
        """Write `line` to the child's stdin, and close stdin if `is_last`.

        Does nothing if the child has exited, which `finish` reports, or after the last line.
        """
        pipe = cast("IO[bytes]", self._started.stdin)
        if pipe.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            pipe.write(f"{line}\n".encode())
            pipe.flush()
        if is_last:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def exits_within(self, seconds: float, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """Whether the child has exited, after at most `seconds` seconds. Its output is read meanwhile.

        The wait also ends when `unless` is true, which is asked at the start and after each output.
        """
        deadline_ns = time.monotonic_ns() + round(seconds * 1e9)
        return _wait_for_exit(self._started, self._sink, deadline_ns, unless) is not None

    def finish(self, timeout_s: float | None = None) -> Outcome:
        """Wait at most `timeout_s` seconds for the exit and return the outcome; stop the child on timeout or on an exception."""
        deadline_ns = None if timeout_s is None else time.monotonic_ns() + round(timeout_s * 1e9)
        code = _wait_for_exit(self._started, self._sink, deadline_ns)
        timed_out = code is None
        if code is None:
            code = self._started.stop_group()
        duration_ns = time.monotonic_ns() - self._start_ns
        self._started.kill_group(signal.SIGKILL)
        _drain(self._started, self._sink)
        self._started.close()
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
                self._started.stop_group()
            finally:
                self._started.close()


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
    command: list[str],
    cwd: str | Path | None,
    env: Mapping[str, str] | None,
    stdin: IO[bytes] | int,
    errors: IO[bytes],
) -> Command:
    try:
        popen = subprocess.Popen(
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
    return Command(popen)


def _wait_for_exit(
    child: Started, sink: _Sink, deadline_ns: int | None, unless: Callable[[], bool] = lambda: False
) -> int | None:
    """Pass stdout to `sink` until `child` exits; its exit code, or None if the deadline passes or `unless` is true first."""
    pipe = child.stdout
    with selectors.DefaultSelector() as selector, child.exit_events() as exit_events:
        selector.register(pipe, selectors.EVENT_READ)
        if exit_events is not None:
            selector.register(exit_events, selectors.EVENT_READ)
        while (code := child.exit_code()) is None:
            left_s = POLL_S if deadline_ns is None else (deadline_ns - time.monotonic_ns()) / 1e9
            if left_s <= 0 or unless():
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


def _drain(child: Started, sink: _Sink) -> None:
    """Read the rest of the pipe, for a limited time: a process outside the group may keep the pipe open forever."""
    pipe = child.stdout
    until_ns, late_bytes = time.monotonic_ns() + round(DRAIN_S * 1e9), 0
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while late_bytes < PIPE_BYTES:
            left_ns = max(0, until_ns - time.monotonic_ns())
            chunk = os.read(pipe.fileno(), CHUNK_BYTES) if selector.select(left_ns / 1e9) else b""
            if not chunk:
                break
            sink.feed(chunk)
            late_bytes += len(chunk) if not left_ns else 0
    sink.end()


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
