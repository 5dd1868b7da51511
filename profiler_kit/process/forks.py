"""Starts workers as forks of one process that has imported their modules, where that is possible.

An import of torch takes seconds, and `analyze` starts dozens of processes that need it. `forking` starts the server for a block;
`start_fork` asks it for a process.

All forks of a server share its hash seed and the addresses of its libraries, which can make every step of one configuration
longer by tens of percent. Two forks of one server for the same work are therefore not independent measurements:
`separate_forks` replaces the server before it would serve the same work again. Servers that replace others start in groups, on
several cores, because nothing is measured while they import.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import IO, Final

from profiler_kit.process.ending import deferred_interrupts
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

    @property
    def is_collected(self) -> bool:
        """Whether the system has forgotten the process."""
        return self._control.fileno() < 0


class ForkServer:
    """The server's process, and the connection to it. It imports in the background; the first `start` waits for it."""

    def __init__(self, modules: Sequence[str], env: Mapping[str, str], imports: Sequence[str]) -> None:
        self._env = dict(env)
        self._modules = frozenset(modules)
        self._folder = _working_folder()
        self._is_usable: bool | None = None
        self._forks: list[Forked] = []
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
            forked = Forked(pid, control, stdin_pipe, stdout)
            self._forks = [*(fork for fork in self._forks if not fork.is_collected), forked]
            return forked

    @property
    def has_forks(self) -> bool:
        """Whether a fork has not been collected yet."""
        return not all(fork.is_collected for fork in self._forks)

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


class ForkServers:
    """One server after another, each with the same imports. `current` is None if it could not be started.

    `together`: the number of servers that start when one is to be replaced and none is ready, and, if several, at the beginning.
    """

    def __init__(self, modules: Sequence[str], env: Mapping[str, str], imports: Sequence[str], together: int) -> None:
        self._arguments = modules, env, imports
        self._together = together
        self._replaced: list[ForkServer] = []  # their forks still run
        self._served: set[Hashable] = set()
        self._spare: list[ForkServer] = []  # ready to replace the current one
        self.current = self._start()
        if together > 1:  # on other cores, and nothing measures yet
            self._spare = self._start_several(1 + together)  # one for what runs once, such as the A/A run

    def separate(self, work: Hashable) -> None:
        """Replace a server that has served `work` before. Ctrl-C ends the wait for new servers."""
        if work in self._served and self.current is not None:
            with deferred_interrupts():
                self._replaced.append(self.current)
                for server in [server for server in self._replaced if not server.has_forks]:
                    self._replaced.remove(server)
                    server.close()
                if not self._spare:
                    self._spare = self._start_several(self._together)
                self.current = self._spare.pop() if self._spare else None
            self._served.clear()
        for server in self._spare:  # so that none of them imports while a process measures
            server.wait_until_ready()
        self._served.add(work)

    def _start_several(self, count: int) -> list[ForkServer]:
        return [server for server in (self._start() for _ in range(count)) if server is not None]

    def close(self) -> None:
        """End all servers and their forks."""
        with deferred_interrupts():
            for server in (*self._replaced, *self._spare, *([self.current] if self.current is not None else [])):
                server.close()

    def _start(self) -> ForkServer | None:
        with contextlib.suppress(OSError):  # no memory, process or descriptor is free
            return ForkServer(*self._arguments)
        return None


# of each thread: servers end with the block that started them, and their forks with them
_active: Final[ContextVar[ForkServers | None]] = ContextVar("_active", default=None)


@contextlib.contextmanager
def forking(
    modules: Sequence[str], env: Mapping[str, str], imports: Sequence[str] = (), together: int = 1
) -> Iterator[None]:
    """Within the block, start ``python -m`` of one of `modules` as a fork where that makes no difference to the process.

    `imports` are further modules that all forks share. `together` servers start when `separate_forks` needs one. Processes
    start as usual on systems other than Linux, with an environment other than `env`, or if an import has started threads or
    used the device. An inner block changes nothing.
    """
    if _active.get() is not None or sys.platform != "linux":
        yield
        return
    servers: ForkServers | None = None
    try:
        with deferred_interrupts():  # an interrupted start would leave a process that nothing stops
            servers = ForkServers(modules, env, imports, together)
            _active.set(servers)
        yield
    finally:
        _active.set(None)
        if servers is not None:
            servers.close()


def separate_forks(work: Hashable) -> None:
    """Within a block of `forking`: do not fork from a process from which `work` has been forked before."""
    servers = _active.get()
    if servers is not None:
        servers.separate(work)


def start_fork(
    argv: Sequence[str], *, cwd: object, env: Mapping[str, str] | None, stdin: IO[bytes] | int, errors: IO[bytes]
) -> Forked | None:
    """The process that `argv` starts, as a fork; None if it has to be started as usual."""
    server = _current()
    return server.start(argv[2:], stdin, errors) if server is not None and server.serves(argv, env, cwd) else None


def wait_for_server(argv: Sequence[str], *, cwd: object, env: Mapping[str, str] | None) -> None:
    """Wait until the server can fork for `argv`, if it is going to. Ctrl-C ends the wait."""
    server = _current()
    if server is not None and server.serves(argv, env, cwd):
        server.wait_until_ready()


def _current() -> ForkServer | None:
    servers = _active.get()
    return servers.current if servers is not None else None


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
