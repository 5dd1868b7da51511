"""Run `count` on one file of a repository in a sandbox, and report what it printed and what it left behind.

The sandbox is a fresh copy of the repository, an empty home and an empty folder for temporary files. Where the system allows
it, the process has no network. After the run the folders are compared and the processes of the run are searched (Linux).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from profiler_kit.records.notes import Note
from profiler_kit.records.serde import from_json
from scripts.bench.stranger_expectations import Shape

ROOT: Final = Path(__file__).resolve().parents[2]
COMMAND: Final = re.compile(
    r"(?:profiler-kit|python3? -m profiler_kit) (?P<arguments>(?:count|analyze) [^\n`]+?)(?=; |, or |\)?$|\)[;, ])",
    re.MULTILINE,
)
ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*m")
MARKER: Final = "PROFILER_KIT_STRANGERS_RUN"  # in the environment of every process of a run
MAX_COPIED_BYTES: Final = 2_000_000  # weights, data and pictures are not copied
UNREACHABLE: Final = "http://127.0.0.1:9"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The counted model: class, parameters, inputs and the multiply-adds of one forward pass. `notes` name the evidence."""

    class_name: str
    parameters: int
    inputs: tuple[Shape, ...]
    macs: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the command line. `answer` is None if it failed. `hint` holds the arguments of the first command printed."""

    seconds: float
    exit_code: int | None
    answer: Answer | None
    message: str
    hint: tuple[str, ...]
    side_effects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The folders of a run."""

    repository: Path
    home: Path
    temporary: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders in which a run may leave files."""
        return (self.repository, self.home, self.temporary)


@contextlib.contextmanager
def make_sandbox(checkout: Path) -> Iterator[Sandbox]:
    """Yield a sandbox with a copy of `checkout`, without its history and its large files."""
    with tempfile.TemporaryDirectory(prefix="strangers-", ignore_cleanup_errors=True) as folder:
        sandbox = Sandbox(Path(folder) / checkout.name, Path(folder) / "home", Path(folder) / "tmp")
        shutil.copytree(checkout, sandbox.repository, ignore=_large_files, symlinks=True)
        sandbox.home.mkdir()
        sandbox.temporary.mkdir()
        yield sandbox


def _large_files(folder: str, names: list[str]) -> list[str]:
    def is_left_out(path: Path) -> bool:
        return path.name == ".git" or (path.is_file() and path.stat().st_size > MAX_COPIED_BYTES)

    return [name for name in names if is_left_out(Path(folder) / name)]


def run_count(arguments: Sequence[str], sandbox: Sandbox, packages: Sequence[Path], time_limit_s: float) -> Run:
    """Run the command line with `arguments`, for example ``count models/net.py``, in the sandbox."""
    before = snapshot(sandbox)
    mark = uuid.uuid4().hex
    command = [*_without_network(), sys.executable, "-m", "profiler_kit", *arguments, "-f", "json"]
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=sandbox.repository,
        env=_environment(sandbox, packages, mark),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=time_limit_s)
        exit_code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        _kill_group(process.pid)
        stdout, stderr = process.communicate()
        exit_code = None
    seconds = time.perf_counter() - start
    side_effects = [*_left_processes(mark, process.pid), *changed_files(before, snapshot(sandbox), sandbox)]
    stderr = ESCAPE.sub("", stderr)
    return Run(
        seconds=seconds,
        exit_code=exit_code,
        answer=read_answer(stdout) if exit_code == 0 else None,
        message=_message(stderr) if exit_code is not None else f"no answer within {time_limit_s:g} s",
        hint=find_hint(stderr),
        side_effects=tuple(side_effects),
    )


def read_answer(text: str) -> Answer | None:
    """Return the counted model of a report; None if `text` is not one."""
    try:
        report: dict[str, Any] = json.loads(text)
        static, target = report["static"], report["target"]
        return Answer(
            class_name=static["modules"][0]["class_name"],
            parameters=static["params"],
            inputs=tuple((tuple(tensor["shape"]), tensor["dtype"]) for tensor in target["inputs"]),
            macs=static["forward"]["macs"],
            notes=tuple(str(from_json(Note, note)) for note in target["notes"]),
        )
    except (ValueError, KeyError, IndexError, TypeError):
        return None


def find_hint(stderr: str) -> tuple[str, ...]:
    """Return the arguments of the first command in the hints, else of the first command anywhere; empty without one."""
    hints = [line for line in stderr.splitlines() if line.lstrip().startswith("hint:")]
    for text in ("\n".join(hints), stderr):
        for match in COMMAND.finditer(text):
            with contextlib.suppress(ValueError):
                return tuple(shlex.split(match["arguments"].rstrip(" .")))
    return ()


def _message(stderr: str) -> str:
    """Return the error, the last line of a traceback, or nothing."""
    lines = stderr.strip().splitlines()
    if any(line.startswith("Traceback") for line in lines):
        return f"traceback: {lines[-1]}"
    errors = [line for line in lines if line.startswith("error:")]
    return errors[0] if errors else ""


@functools.cache
def _without_network() -> tuple[str, ...]:
    """Return the command prefix that removes the network, if it works on this system."""
    prefix = ("unshare", "--map-root-user", "--net")
    if shutil.which(prefix[0]) is None:
        return ()
    return prefix if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0 else ()


def _environment(sandbox: Sandbox, packages: Sequence[Path], mark: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *map(str, packages)])
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), UNREACHABLE)
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(sandbox.home),
        "TMPDIR": str(sandbox.temporary),
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "LANG": "C.UTF-8",
        MARKER: mark,
        **proxies,
    }


def snapshot(sandbox: Sandbox) -> dict[Path, tuple[int, int]]:
    """Return size and time of change of each file, and zeros for each folder."""
    entries = {}
    for folder in sandbox.folders:
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                status = path.lstat()
                entries[path] = (0, 0) if path.is_dir() else (status.st_size, status.st_mtime_ns)
    return entries


def changed_files(
    before: dict[Path, tuple[int, int]], after: dict[Path, tuple[int, int]], sandbox: Sandbox
) -> Iterator[str]:
    """Yield the differences of two snapshots. A new folder stands for the files in it."""
    base = sandbox.repository.parent
    created: set[Path] = set()
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) == after.get(path):
            continue
        if path not in before:
            created.add(path)
            if path.parent in created:
                continue
        change = "deleted" if path not in after else "created" if path not in before else "changed"
        yield f"{change} {path.relative_to(base)}"


def _left_processes(mark: str, leader: int) -> list[str]:
    """Return the processes of the run that still exist, and end them. Only Linux shows the environment of a process."""
    left = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(folder.name) == leader or mark.encode() not in (folder / "environ").read_bytes():
                continue
            arguments = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            os.kill(int(folder.name), signal.SIGKILL)
            left.append(f"process left: {arguments[:80]}")
    return left


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
