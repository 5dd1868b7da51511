"""``run --later``: a program runs without hooks until a request comes, and its next steps are recorded, as often as it is asked.

A command reaches it by a file about each process, and a file in its report folder.

The report folder may be on a disk that several machines share. The file about the process is in a folder of the user on its own
machine.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from profiler_kit.errors import UsageError
from profiler_kit.integrations.program import AfterImport, Program
from profiler_kit.integrations.program_session import ProgramSession, RunOptions
from profiler_kit.temporary_files import replacement

POLL_S: Final = 0.5  # between two looks at the report folder


class Later:
    """Waits in a thread of its own for requests in the report folder, and starts a session for each, one at a time."""

    def __init__(self, program: Program, options: RunOptions) -> None:
        self._program, self._options = program, options
        self._process, self._is_over = os.getpid(), threading.Event()
        self._session: ProgramSession | None = None
        self._handled: Request | None = None

    def run(self) -> None:
        """Run the program in this process. What it raises is raised."""
        self._options.out.mkdir(parents=True, exist_ok=True)
        self._handled = last_request(self._options.out)  # of an earlier run with the same folder
        register(self._options.out, self._program.name)
        AfterImport("torch", self._wait).install()
        self._program.run(at_end=self._end)

    def _wait(self) -> None:
        from profiler_kit.recording.optimizer_steps import STEPS

        STEPS.install(stays=True)
        threading.Thread(target=self._serve, name="profiler_kit", daemon=True).start()

    def _serve(self) -> None:
        while not self._is_over.wait(POLL_S):
            wanted = last_request(self._options.out)
            if wanted is None or wanted == self._handled or (self._session is not None and not self._session.is_over):
                continue
            self._handled = wanted
            time.sleep(max(0.0, min(wanted.at_s - time.time(), 60.0)))
            self._record(wanted)

    def _record(self, wanted: Request) -> None:
        from profiler_kit.recording.optimizer_steps import STEPS

        folder = self._options.out / wanted.name
        options = replace(self._options, out=folder)
        # a program that trains has no steps that are calls
        self._session = ProgramSession(self._program, options, is_late=True, watches_calls=not STEPS.count)
        self._session.watch_with_other_ranks(wanted.name) if STEPS.count else self._session.watch()
        folder.mkdir(exist_ok=True)
        (folder / STARTED).touch()

    def _end(self) -> None:
        """The program is over: write the report on a recording that has begun."""
        if os.getpid() == self._process:
            self._is_over.set()
            if self._session is not None:
                self._session.end()


REQUEST: Final = "trigger.json"  # in the report folder: the last request
STARTED: Final = "started"  # in the folder of a recording: a process has begun to look for the loop
DELAY_S: Final = 2.0  # from a request to its start: all ranks have read it by then


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachable:
    """A process that waits for requests in the report folder `folder`. `parent`: its parent process, such as a launcher."""

    pid: int
    parent: int
    folder: str
    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to record the next steps from the time `at_s` of the clock on, into the subfolder `name`."""

    name: str
    at_s: float


def register(folder: Path, program: str) -> None:
    """Tell other processes of the user, as long as this one lives, that it waits for requests in `folder`."""
    process = Attachable(pid=os.getpid(), parent=os.getppid(), folder=str(folder), program=program)
    file = _folder() / f"{process.pid}.json"
    partial = file.with_suffix(".partial")
    # a lock of the process: forks do not have it, and the system releases it when the process ends for any reason
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, json.dumps(asdict(process)).encode())
    partial.replace(file)


def attachable() -> list[Attachable]:
    """The processes of this user on this machine that wait for requests. Files about others are removed."""
    found = []
    for file in sorted(_folder().glob("*.json")):
        process = _read(file)
        if process is not None and _is_locked(file):
            found.append(process)
        else:
            file.unlink(missing_ok=True)
    return found


def folder_of(target: str) -> Path:
    """The report folder of `target`: a process number, that of its launcher, or the folder itself. Raises UsageError."""
    if not target.isdecimal():
        if not Path(target).is_dir():
            raise UsageError(
                "no such folder", where=target, hint="give the --out folder of run --later, or a process number"
            )
        return Path(target)
    processes = attachable()
    folders = {p.folder for p in processes if p.pid == int(target)} or {
        p.folder for p in processes if p.parent == int(target)
    }
    if len(folders) == 1:
        return Path(folders.pop())
    waiting = ", ".join(f"{p.pid} ({p.program})" for p in processes) or "none"
    raise UsageError(
        f"process {target} does not wait for requests on this machine, or is not yours",
        hint=f"start it with run --later; waiting here: {waiting}; or give its --out folder",
    )


def request(folder: Path) -> Request:
    """Ask all processes with this report folder to record their next steps. Raises OSError."""
    now_s = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_s))
    names = (f"{stamp}{suffix}" for suffix in ("", *(f"-{n}" for n in range(2, 100))))
    wanted = Request(name=next(name for name in names if not (folder / name).exists()), at_s=now_s + DELAY_S)
    (folder / wanted.name).mkdir()
    with replacement(folder / REQUEST) as partial:
        partial.write_text(json.dumps(asdict(wanted)), encoding="utf-8")
    return wanted


def last_request(folder: Path) -> Request | None:
    """The last request in a report folder; None without one that can be read."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        content = json.loads((folder / REQUEST).read_bytes())
        wanted = Request(name=str(content["name"]), at_s=float(content["at_s"]))
        if Path(wanted.name).name == wanted.name:
            return wanted
    return None


def _read(file: Path) -> Attachable | None:
    with suppress(OSError, ValueError, TypeError):
        return Attachable(**json.loads(file.read_bytes()))
    return None


def _folder() -> Path:
    """The folder of the user with a file about each process."""
    folder = Path(tempfile.gettempdir()) / f"profiler_kit_attach_{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.is_symlink():
        raise UsageError(
            "this folder belongs to somebody else", where=str(folder), hint="set TMPDIR to a folder of yours"
        )
    return folder


def _is_locked(file: Path) -> bool:
    """Whether another process holds the lock of `file`."""
    try:
        with file.open("r+b") as opened:
            fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
