"""A process that has imported the modules of workers, and forks a process for each of them.

Started by `forks` as ``python -m profiler_kit.process.fork_server MODULE...`` with a socket as stdin. A fork has its own
session, the streams of its request, and runs a module as ``python -m`` does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler_kit.process.forks import READY
from profiler_kit.process.parent import exit_with_parent

REQUEST_BYTES: Final = 64 * 1024
STREAMS: Final = 4  # of a request: stdin, stdout, stderr, and the socket on which the server reports the exit


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments after ``python -m``, and the streams of the process to fork."""

    argv: tuple[str, ...]
    streams: tuple[int, ...]


def main(modules: list[str]) -> None:
    """Import `modules`, report on stdin's socket whether a fork is safe, and fork until the socket is closed."""
    exit_with_parent()
    connection = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # collections of a fork would visit the objects of the imports, and so copy their memory
    obstacle = _obstacle()
    connection.send(READY if obstacle is None else obstacle.encode())
    if obstacle is not None:
        return
    server = os.getpid()
    request = _serve(connection)
    if request is not None:  # this is the fork
        _run(request, server)


def _obstacle() -> str | None:
    """Why a fork of this process is not safe; None if it is. Imports must start no threads and open no device."""
    pid = os.fork()
    if pid == 0:
        os._exit(_uses_device())
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        return "an import has used the device"
    # OpenBLAS ends its threads before a fork and starts them again when they are needed, so count after one.
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208
    return None if threads == 1 else f"imports have started {threads - 1} threads"


def _uses_device() -> bool:
    """Whether this fork cannot use the device because its parent did."""
    torch = sys.modules.get("torch")
    if torch is not None and (torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork()):
        return True
    opened = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):  # the descriptor of this listing
            opened.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
    return any(path.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri")) for path in opened)


def _serve(connection: socket.socket) -> Request | None:
    """Fork for each request. Return the request in the fork, and None in the server when `connection` is closed.

    A fork that exits stays a zombie until its socket is closed, so that its id is not reused before.
    """
    children: dict[socket.socket, int] = {}
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the signal wakes the loop
    running: set[socket.socket] = set()
    while True:
        watched: list[socket.socket | int] = [connection, wake, *children]
        readable, _, _ = select.select(watched, [], [])
        if wake in readable:
            os.read(wake, 4096)
        for control in list(running):
            code = _exit_code(children[control])
            if code is not None:
                running.discard(control)
                with contextlib.suppress(OSError):  # nobody waits for it anymore
                    control.send(str(code).encode())
        for control in [stream for stream in readable if stream in children]:
            _collect(children.pop(control))
            running.discard(control)
            control.close()
        if connection not in readable:
            continue
        request = _receive(connection)
        if request is None:
            for pid in children.values():
                _collect(pid)
            return None
        *streams, control_stream = request.streams
        control = socket.socket(fileno=control_stream)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.write(write, b"1")
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (read, write, wake, alarm):
                os.close(descriptor)
            for other in (connection, control, *children):
                other.close()
            return Request(request.argv, tuple(streams))
        os.close(write)
        os.read(read, 1)  # from now on the fork leads its process group
        os.close(read)
        for stream in streams:
            os.close(stream)
        children[control] = pid
        running.add(control)
        control.send(str(pid).encode())


def _receive(connection: socket.socket) -> Request | None:
    message, streams, _, _ = socket.recv_fds(connection, REQUEST_BYTES, STREAMS)
    return Request(tuple(json.loads(message)), tuple(streams)) if message else None


def _exit_code(pid: int) -> int | None:
    status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def _collect(pid: int) -> None:
    """Stop the process group of `pid` if it still runs, and let the system forget its id."""
    if _exit_code(pid) is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _run(request: Request, server: int) -> None:
    """Run the requested module in this fork of the process `server`."""
    exit_with_parent()
    if os.getppid() != server:  # it ended before the line above
        os._exit(1)
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    _reseed()
    module, *arguments = request.argv
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _reseed() -> None:
    """Give the global generators the random state of a process that has just imported them."""
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


if __name__ == "__main__":
    main(sys.argv[1:])
