"""Start Python processes as forks of a process that has imported torch, instead of importing it in each.

An import of torch, and of its compiler with the first step of an optimizer, takes four seconds of CPU time, and the tests
start more than a hundred processes that need it. A fork has
all properties of the process that was asked for: its own id, arguments, environment, working directory, streams, session,
exit status, and this process as its parent. Torch and this package are imported in advance. A process that finds another
copy of the package on its path imports that one, and every process finds the user's files by itself. The marker
``fresh_process`` switches this off for a test.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import io
import os
import pickle
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

WORKERS: Final = ("profiler_kit.worker.", "profiler_kit.process.fork_server")
SERVED_MODULES: Final = (*WORKERS, "scripts.", "torch.distributed.run", "package.")
SERVED_CODE: Final = (
    "import entry; entry()",
    "import entry; entry()()",
)  # the end of ``python -c``, as in a task of a sweep
SERVED_VERBS: Final = ("analyze", "check", "count", "run", "sweep", "tune")
PR_SET_CHILD_SUBREAPER: Final = 36  # from linux/prctl.h
REQUEST_BYTES: Final = 1 << 20
PACKAGE: Final = Path(__file__).resolve().parent.parent / "profiler_kit"
NOT_IMPORTED: Final = ("__main__", "integrations", "mcp_server")  # run a command, or need packages that may be missing
OWN_VARIABLES: Final = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}

SERVER_CODE: Final = """
import socket, sys
sys.path.insert(1, sys.argv[1])
import fork_server
del sys.path[1]
fork_server.main(socket.socket(fileno=int(sys.argv[2])))
"""

PYTHON: Final = sys.executable  # tests replace sys.executable by programs that fail

_RealPopen: Final = subprocess.Popen
_execute_child_signature: Final = inspect.signature(_RealPopen._execute_child)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A process to start. Its three streams travel beside it."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    new_session: bool
    unbuffered: bool


class ForkingPopen(_RealPopen):  # type: ignore[type-arg]
    """A `subprocess.Popen` that asks the fork server for Python processes that need torch."""

    def _execute_child(self, *args: Any, **kwargs: Any) -> None:
        call = _execute_child_signature.bind(self, *args, **kwargs).arguments
        request = _request(call)
        if request is None:
            super()._execute_child(*args, **kwargs)  # type: ignore[misc]
            return
        pipes = [call[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        streams = [pipe if pipe != -1 else number for number, pipe in enumerate(pipes[i] for i in (0, 3, 5))]
        self.pid = _server().start(request, streams)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def install(active: bool = True) -> None:
    """Replace `subprocess.Popen` where the system can hand a fork over to another parent, or restore it."""
    if sys.platform == "linux":
        subprocess.Popen = ForkingPopen if active else _RealPopen  # type: ignore[misc]


class _Server:
    """The connection to the process that forks."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self.owner = os.getpid()
        _adopt_orphans()

    def start(self, request: Request, streams: list[int]) -> int:
        with self._lock:
            socket.send_fds(self._connection, [pickle.dumps(request)], streams)
            return int(self._connection.recv(64))


_connected: _Server | None = None


def _server() -> _Server:
    global _connected
    if _connected is None or _connected.owner != os.getpid():
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        process = _RealPopen(
            [PYTHON, "-c", SERVER_CODE, str(Path(__file__).parent), str(theirs.fileno())],
            env=environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        _connected = _Server(ours)
        atexit.register(_end, ours, process)
    return _connected


def _end(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    connection.close()
    process.wait()


def _request(call: dict[str, Any]) -> Request | None:
    """The request for a fork, or None if the process has to be started as usual."""
    args = call["args"]
    if isinstance(args, (str, bytes, os.PathLike)) or call["shell"] or call["pass_fds"]:
        return None
    argv = [os.fspath(word) for word in args]
    unbuffered = argv[1:2] == ["-u"]  # as ranks are started
    argv[1:2] = [] if unbuffered else argv[1:2]
    env = dict(os.environ if call["env"] is None else call["env"])
    cwd = os.fspath(call["cwd"]) if call["cwd"] is not None else os.getcwd()  # noqa: PTH109 a text for another process
    is_plain = call["executable"] is None and call["preexec_fn"] is None and all(isinstance(word, str) for word in argv)
    if not (is_plain and _needs_torch(argv, cwd) and _same_interpreter(env) and Path(cwd).is_dir()):
        return None
    return Request(argv=argv[1:], cwd=cwd, env=env, new_session=call["start_new_session"], unbuffered=unbuffered)


def _needs_torch(argv: list[str], cwd: str) -> bool:
    if len(argv) < 2 or argv[0] != PYTHON:
        return False
    if argv[1] == "-c":
        return argv[2].endswith(SERVED_CODE) and argv[3:4] != [] and argv[3] in SERVED_VERBS
    if argv[1] == "-m":
        module, verb = argv[2], next((word for word in argv[3:] if not word.startswith("-")), "")
        return module.startswith(SERVED_MODULES) or (module == "profiler_kit" and verb in SERVED_VERBS)
    return argv[1].endswith(".py") and Path(cwd, argv[1]).is_file()


def _same_interpreter(env: dict[str, str]) -> bool:
    """Whether `env` has the settings that an interpreter and its libraries read once, when they start."""
    names = {name for name in env.keys() | os.environ.keys() if name.startswith(("PYTHON", "LC_", "LANG", "OMP_"))}
    return all(env.get(name) == os.environ.get(name) for name in names - OWN_VARIABLES)


def _adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _serve(connection: socket.socket) -> tuple[Request, list[int]] | None:
    """Fork for each request. Return the request in the fork, and None at the end in the server."""
    while True:
        message, streams, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 3)
        if not message:
            return None
        read, write = os.pipe()
        first = os.fork()
        if first == 0:
            between = os.getpid()
            second = os.fork()
            if second:  # this process ends, so that the client becomes the parent of the second
                os.write(write, str(second).encode())
                os._exit(0)
            os.close(read)
            os.close(write)
            while os.getppid() == between:
                time.sleep(0.0005)
            return pickle.loads(message), streams
        os.close(write)
        pid = os.read(read, 64)
        os.close(read)
        os.waitpid(first, 0)
        for stream in streams:
            os.close(stream)
        connection.send(pid)


def _become(request: Request, streams: list[int]) -> None:
    """Give this fork the streams, the session, the environment and the paths of the requested process."""
    if request.new_session:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    _open_streams(sys.stdout.write_through or request.unbuffered)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request.env)
    os.chdir(request.cwd)
    tempfile.tempdir = None
    firsts = {"-m": request.cwd, "-c": ""}
    first = firsts[request.argv[0]] if request.argv[0] in firsts else str(Path(request.argv[0]).resolve().parent)
    added = [path for path in request.env.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [first, *added, *sys.path[1:]]
    sys.argv[:] = request.argv if request.argv[0] != "-m" else request.argv[1:]
    _forget_other_package()


def _open_streams(unbuffered: bool) -> None:
    """Open the three streams again as Python does at its start: the objects remember what kind of file they had."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        buffering = 0 if unbuffered and number > 0 else -1
        binary = open(number, "wb" if number else "rb", buffering=buffering, closefd=False)  # noqa: SIM115
        new = io.TextIOWrapper(
            binary, old.encoding, old.errors, line_buffering=number == 2, write_through=number > 0 and unbuffered
        )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def import_package() -> None:
    """Import all of the package: a count or a measurement needs most of it, which takes half a second in each process."""
    sys.path.insert(0, str(PACKAGE.parent))
    for module in pkgutil.walk_packages([str(PACKAGE)], f"{PACKAGE.name}."):
        if not set(NOT_IMPORTED) & set(module.name.split(".")):
            importlib.import_module(module.name)
    del sys.path[0]


def _forget_other_package() -> None:
    """Forget the imported package where this fork finds another one first, or none."""
    found = (finder.find_spec(PACKAGE.name, None) for finder in sys.meta_path)
    spec = next((spec for spec in found if spec is not None), None)
    if spec is None or spec.origin is None or Path(spec.origin).resolve().parent != PACKAGE:
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE.name]:
            del sys.modules[name]


def _run(request: Request) -> None:
    main_module = types.ModuleType("__main__")
    sys.modules["__main__"] = main_module
    if request.argv[0] == "-c":
        sys.argv[:] = ["-c", *request.argv[2:]]
        exec(request.argv[1], main_module.__dict__)
    elif sys.argv[0].endswith(".py"):
        main_module.__dict__.update(__file__=sys.argv[0], __builtins__=__builtins__)
        exec(compile(Path(sys.argv[0]).read_bytes(), sys.argv[0], "exec"), main_module.__dict__)
    else:
        if "." in sys.argv[0]:  # of the package, it is run like a module that was not imported before
            sys.modules.pop(sys.argv[0], None)
        runpy._run_module_as_main(sys.argv[0])  # type: ignore[attr-defined]


def _end_process(status: int) -> None:
    """End as an interpreter does, without its last act: it visits all objects, and so copies their pages, which takes 0.3 s.

    Returns where the streams cannot be written, which the interpreter reports.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    with contextlib.suppress(Exception):  # printed
        atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(status & 0xFF)


def _fork_own_server() -> socket.socket | None:
    """Fork a server for the processes that this fork starts. Return its connection in the server, and None in this fork."""
    global _connected
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        os.setsid()
        return theirs
    theirs.close()
    _connected = _Server(ours)
    install()
    return None


def main(connection: socket.socket) -> None:
    """Import torch and the package, and fork for each request until the other end of `connection` is closed."""
    import torch._dynamo  # every optimizer imports it with its first step
    import torch.profiler  # noqa: F401

    import_package()
    gc.collect()
    gc.freeze()  # a fork whose collections visit the objects of the imports copies their pages

    while (served := _serve(connection)) is not None:
        request, streams = served
        connection.close()
        if not any(word.startswith(WORKERS) for word in request.argv[:2]):
            own = _fork_own_server()
            if own is not None:
                connection = own
                for stream in streams:
                    os.close(stream)
                continue
        _become(request, streams)
        try:
            _run(request)
            _end_process(0)
        except SystemExit as end:
            if end.code is not None and not isinstance(end.code, int):
                raise
            _end_process(end.code or 0)
        return
    os._exit(0)
