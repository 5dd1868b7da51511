"""Starts workers as forks of one process that has imported their modules, where that is possible.

An import of torch takes seconds, and `analyze` starts dozens of processes that need it. `forking` starts the server for a block;
`start_fork` asks it for a process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import IO, Final

from profiler_kit.process.interrupts import deferred_interrupts
from profiler_kit.process.started import Command, Started

SERVER_MODULE: Final = "profiler_kit.process.fork_server"
READY: Final = b"ready"  # the server's first message; any other one is the reason why a fork is not safe
MESSAGE_BYTES: Final = 1024
START_UP_S: Final = 180.0  # to import torch from a cold disk
REQUEST_S: Final = 10.0  # to fork; a server that needs longer hangs


class Forked(Started):
    """A fork of the server, which is its parent and reports its exit."""

    def __init__(self, pid: int, control: socket.socket, stdin: IO[bytes] | None, stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._control = control
        self._code: int | None = None

    def current_exit_code(self) -> int | None:
        """The exit code, negative for a signal; None if the process still runs."""
        if self._code is None:
            with contextlib.suppress(BlockingIOError):
                message = _receive(self._control, socket.MSG_DONTWAIT)
                self._code = int(message) if message else -signal.SIGKILL  # the server is gone, and its forks with it
        return self._code

    @contextlib.contextmanager
    def exit_events(self) -> Iterator[int | None]:
        """A descriptor that becomes readable when the process exits."""
        yield self._control.fileno()

    def collect(self) -> None:
        """Let the system forget the process, which has exited, and its id. Does nothing the second time."""
        self._control.close()


class ForkServer:
    """The server's process, and the connection to it. It imports in the background; the first `start` waits for it."""

    def __init__(self, modules: Sequence[str], env: Mapping[str, str], imports: Sequence[str]) -> None:
        self._env = dict(env)
        self._modules = frozenset(modules)
        self._folder = _working_folder()
        self._is_usable: bool | None = None
        self._connection, theirs = _socket_pair()
        command = [sys.executable, "-m", SERVER_MODULE, *imports, *modules]
        with theirs:
            popen = subprocess.Popen(
                command,
                env=self._env,
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._process = Command(popen)

    def serves(self, argv: Sequence[str], env: Mapping[str, str] | None, cwd: object) -> bool:
        """Whether a fork equals the process that `argv` starts: the same program, module, environment and folder."""
        return (
            list(argv[:2]) == [sys.executable, "-m"]
            and len(argv) > 2
            and argv[2] in self._modules
            and cwd is None
            and dict(os.environ if env is None else env) == self._env
            and _working_folder() == self._folder
        )

    def start(self, argv: Sequence[str], stdin: IO[bytes] | int, errors: IO[bytes]) -> Forked | None:
        """A fork that runs ``python -m`` with the arguments `argv`, with a pipe as stdout; None if the server is not usable."""
        if not self.wait_until_ready():
            return None
        with (
            contextlib.ExitStack() as theirs,
            contextlib.ExitStack() as ours,
        ):  # the ends of the new process, and of this one
            stdin_pipe: IO[bytes] | None = None
            if stdin == subprocess.PIPE:
                descriptor, write = os.pipe()
                theirs.callback(os.close, descriptor)
                stdin_pipe = ours.enter_context(os.fdopen(write, "wb", buffering=0))
            elif isinstance(stdin, int):
                descriptor = os.open(os.devnull, os.O_RDONLY)
                theirs.callback(os.close, descriptor)
            else:
                descriptor = stdin.fileno()
            read, write = os.pipe()
            theirs.callback(os.close, write)
            stdout = ours.enter_context(os.fdopen(read, "rb", buffering=0))
            control, their_control = _socket_pair()
            theirs.enter_context(their_control)
            ours.enter_context(control)
            streams = [descriptor, write, errors.fileno(), their_control.fileno()]
            try:
                socket.send_fds(self._connection, [json.dumps(list(argv)).encode()], streams)
                theirs.close()  # so that a server that is gone shows as the end of `control`
                control.settimeout(REQUEST_S)
                pid = int(_receive(control) or 0)
                control.settimeout(None)
            except OSError:
                pid = 0
            if not pid:
                self._is_usable = False
                return None
            ours.pop_all()
            return Forked(pid, control, stdin_pipe, stdout)

    def close(self) -> None:
        """End the server and its forks."""
        self._is_usable = False
        self._connection.close()
        self._process.kill_group(signal.SIGKILL)
        self._process.exit_code(REQUEST_S)
        self._process.close()

    def wait_until_ready(self) -> bool:
        """Whether forks are possible, once the server has imported its modules. Ctrl-C ends the wait."""
        if self._is_usable is None:
            self._connection.settimeout(START_UP_S)
            try:
                self._is_usable = _receive(self._connection) == READY
            except OSError:
                self._is_usable = False
        return self._is_usable


# of each thread: a server ends with the block that started it, and its forks with it
_active: Final[ContextVar[ForkServer | None]] = ContextVar("_active", default=None)


@contextlib.contextmanager
def forking(modules: Sequence[str], env: Mapping[str, str], imports: Sequence[str] = ()) -> Iterator[None]:
    """Within the block, start ``python -m`` of one of `modules` as a fork where that makes no difference to the process.

    `imports` are further modules that all forks share. Processes start as usual on systems other than Linux, with an environment
    other than `env`, or if an import has started threads or used the device. An inner block changes nothing.
    """
    if _active.get() is not None or sys.platform != "linux":
        yield
        return
    server: ForkServer | None = None
    try:
        with deferred_interrupts():  # an interrupted start would leave a process that nothing stops
            with contextlib.suppress(OSError):  # no memory, process or descriptor is free
                server = ForkServer(modules, env, imports)
            _active.set(server)
        yield
    finally:
        _active.set(None)
        if server is not None:
            with deferred_interrupts():
                server.close()


def start_fork(
    argv: Sequence[str], *, cwd: object, env: Mapping[str, str] | None, stdin: IO[bytes] | int, errors: IO[bytes]
) -> Forked | None:
    """The process that `argv` starts, as a fork; None if it has to be started as usual."""
    server = _active.get()
    return server.start(argv[2:], stdin, errors) if server is not None and server.serves(argv, env, cwd) else None


def wait_for_server(argv: Sequence[str], *, cwd: object, env: Mapping[str, str] | None) -> None:
    """Wait until the server can fork for `argv`, if it is going to. Ctrl-C ends the wait."""
    server = _active.get()
    if server is not None and server.serves(argv, env, cwd):
        server.wait_until_ready()


def _working_folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 compared as text
    except OSError:  # it was deleted
        return None


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _receive(connection: socket.socket, flags: int = 0) -> bytes:
    """The next message; empty if the other end is gone."""
    try:
        return connection.recv(MESSAGE_BYTES, flags)
    except ConnectionError:
        return b""
