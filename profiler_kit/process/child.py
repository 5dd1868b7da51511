"""Runs a command to its end, or ends it.

A child gets a session, and so a process group, of its own. Whatever way `run` is left, by the child's end, a timeout,
Ctrl-C or any other exception, no process of that group stays behind and every pipe and file is closed.
"""

from __future__ import annotations

import codecs
import contextlib
import ctypes
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

TAIL_LINES: Final = 40
TAIL_BYTES: Final = 64 * 1024
STDOUT_LIMIT_BYTES: Final = 64 * 1024 * 1024
GRACE_S: Final = 2.0  # from SIGTERM to SIGKILL: time to remove temporary files, too short to look like a hang
POLL_S: Final = 0.2  # how late the end of a child whose own child holds the pipe may be noticed
DRAIN_S: Final = 2.0
LINE_LIMIT: Final = 1024 * 1024
CHUNK_BYTES: Final = 64 * 1024
PR_SET_PDEATHSIG: Final = 1  # of linux/prctl.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a command ended, and what it wrote.

    `returncode` is negative, and `signal_name` set, where a signal ended it; `timed_out` says that signal was ours.
    `stdout` is its first 64 MiB (`stdout_cut` says there was more), undecodable bytes replaced; `log_tail` is the last
    lines of its stderr.
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
        """True where the command ended by itself with exit status 0."""
        return self.returncode == 0 and not self.timed_out

    @property
    def ending(self) -> str:
        """``SIGKILL`` or ``exit status 3``: what ended it."""
        return self.signal_name or f"exit status {self.returncode}"

    @property
    def last_words(self) -> str:
        """The last line of the log that says something; empty where none does."""
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
    """How `argv` ended, run to its end or for `timeout_s` seconds.

    `env` replaces the whole environment; None inherits it. stdin is `stdin_text`, else empty. stderr goes to the file
    `log` (written anew), else to a temporary one. `on_line` is called in this thread with each line of stdout as it
    comes, without its newline.

    On timeout the whole process group gets SIGTERM, two seconds later SIGKILL. Any exception raised meanwhile
    (KeyboardInterrupt, one of `on_line`'s) ends the group the same way and is raised again. Processes that the child
    leaves in its group are killed when it ends.

    Raises:
        KitError: the command can't be started, or `log` can't be written.
    """
    with started(argv, cwd=cwd, env=env, stdin_text=stdin_text, log=log, on_line=on_line) as child:
        return child.finish(timeout_s)


@contextlib.contextmanager
def started(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin_text: str | None = None,
    talks: bool = False,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Iterator[Child]:
    """`argv` as a child that runs beside this process; what is left of it is ended when the block is left.

    As `run`, but that one goes on with something else until `Child.finish`. With `talks` it can be sent a line.

    Raises: KitError, as `run`.
    """
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(_log_file(log))
        stdin = subprocess.PIPE if talks else _stdin_file(stack, stdin_text)
        popen = stack.enter_context(_start(argv, cwd, env, stdin, errors))
        child = Child(popen, _Sink(on_line), errors)
        try:
            yield child
        finally:
            child.end()


def child_environment(*paths: str) -> dict[str, str]:
    """This process's environment for a child that imports this very package's code, then what lies in `paths`."""
    home = str(Path(__file__).resolve().parent.parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [home, *paths]))}


def end_with_parent() -> None:
    """Has the system kill this process as soon as the one that started it ends, in whatever way: for a child's first line.

    A parent that is killed can't end its children, and one that hangs would keep the device for ever. Only Linux can do it;
    elsewhere a child notices when it next hears or says something.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library that can't be loaded so, or lacks the call
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


class Child:
    """A command under way. Made by `started`."""

    def __init__(self, popen: subprocess.Popen[bytes], sink: _Sink, errors: IO[bytes]) -> None:
        self._popen = popen
        self._sink = sink
        self._errors = errors
        self._began_ns = time.monotonic_ns()
        self._finished = False

    def send_line(self, line: str) -> None:
        """Writes `line` to the child's stdin and closes it. One that has ended already does not read it: `finish` says so."""
        pipe = cast("IO[bytes]", self._popen.stdin)
        with contextlib.suppress(BrokenPipeError):
            pipe.write(f"{line}\n".encode())
            pipe.flush()
        with contextlib.suppress(BrokenPipeError):
            pipe.close()

    def finish(self, timeout_s: float | None = None) -> Outcome:
        """How it ended, waited for at most `timeout_s` seconds from now on; then, or on any exception, it is ended."""
        deadline_ns = None if timeout_s is None else time.monotonic_ns() + round(timeout_s * 1e9)
        timed_out = not _follow(self._popen, self._sink, deadline_ns)
        if timed_out:
            _end(self._popen)
        duration_ns = time.monotonic_ns() - self._began_ns
        kill_group(self._popen, signal.SIGKILL)
        _drain(self._popen, self._sink)
        code = self._popen.wait()
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
        """Ends it, where `finish` did not see its end."""
        if not self._finished:
            self._finished = True
            _end(self._popen)


class _Sink:
    """Keeps the first bytes of stdout, and hands on its lines."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self.cut = False
        self._on_line = on_line
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line = ""

    def feed(self, chunk: bytes) -> None:
        room = STDOUT_LIMIT_BYTES - self._kept_bytes
        if len(chunk) > room:
            self.cut = True
        if room > 0:
            self._kept.append(chunk[:room])
            self._kept_bytes += len(self._kept[-1])
        self._hand_on(self._decoder.decode(chunk))

    def end(self) -> None:
        """Hands on the last line, where it has no newline."""
        self._hand_on(self._decoder.decode(b"", final=True))
        if self._on_line is not None and self._line:
            self._on_line(self._line)

    def text(self) -> str:
        return b"".join(self._kept).decode("utf-8", errors="replace")

    def _hand_on(self, text: str) -> None:
        if self._on_line is None:
            return
        *lines, self._line = (self._line + text).split("\n")
        if len(self._line) > LINE_LIMIT:  # no newline for a megabyte: not a line of progress, so don't hoard it
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
        opened = log.open("w+b")
    except OSError as error:
        raise KitError(
            f"the log cannot be written: {error.strerror}", where=str(log), hint="choose a folder that you can write to"
        ) from error
    with opened as file:
        yield file


def _stdin_file(stack: contextlib.ExitStack, text: str | None) -> IO[bytes] | int:
    """A file rather than a pipe: a child that never reads it can't block its parent."""
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
            hint="see that the program and the folder it runs in exist and can be used",
        ) from error


def _follow(child: subprocess.Popen[bytes], sink: _Sink, deadline_ns: int | None) -> bool:
    """True once `child` has ended, False if the deadline came first. Its stdout goes to `sink` meanwhile."""
    pipe = cast("IO[bytes]", child.stdout)
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while child.poll() is None:
            left_s = POLL_S if deadline_ns is None else (deadline_ns - time.monotonic_ns()) / 1e9
            if left_s <= 0:
                return False
            if selector.select(min(POLL_S, left_s)):
                chunk = os.read(pipe.fileno(), CHUNK_BYTES)
                if not chunk:
                    break
                sink.feed(chunk)
    if child.returncode is not None:
        return True
    try:  # stdout is closed, the child is about to end, or lives on without it
        child.wait(None if deadline_ns is None else max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9))
    except subprocess.TimeoutExpired:
        return False
    return True


def _drain(child: subprocess.Popen[bytes], sink: _Sink) -> None:
    """Takes what is left in the pipe. A process that left the group may hold it open for ever, so only for a while."""
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


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the group: SIGTERM, a grace, SIGKILL. A second Ctrl-C during the grace cuts it short."""
    try:
        kill_group(child, signal.SIGTERM)
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        kill_group(child, signal.SIGKILL)
        child.wait()


def kill_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Sends `number` to the whole group of `child`, where any of it is left."""
    # A group's id is not given out again while it has a member; without one there is nothing to kill.
    # macOS answers EPERM for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def tail(log: IO[bytes], most_bytes: int = TAIL_BYTES) -> str:
    """The last lines of `log`: as many as a report shows, and at most `most_bytes` of them."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - most_bytes))
    return "\n".join(log.read(most_bytes).decode("utf-8", errors="replace").splitlines()[-TAIL_LINES:])
