"""What can go wrong while a target is imported, told so that it can be mended."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from profiler_kit.errors import TargetError
from profiler_kit.loading.command import next_line, plain_line
from profiler_kit.loading.place import first_line, shown, user_frame, user_place
from profiler_kit.records.target import TargetSpec

_GUARD = 'if __name__ == "__main__":'
# modules whose package goes by another name
_INSTALLED_AS = {
    "cv2": "opencv-python",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
}


class _StillRunning(BaseException):
    """Raised inside the user's code; no Exception, so that its own handlers let it through."""


@contextlib.contextmanager
def watchdog(spec: TargetSpec, file: Path | None) -> Iterator[None]:
    """Stops what runs inside after ``spec.import_timeout_s`` with a TargetError that names the line it was at.

    Only in the main thread, where Python handles signals; elsewhere nothing is watched. A timer that was already set goes
    on afterwards, and one that would ring earlier is left alone.
    """
    limit = spec.import_timeout_s
    earlier_s, interval_s = signal.getitimer(signal.ITIMER_REAL)
    if threading.current_thread() is not threading.main_thread() or 0 < earlier_s <= limit:
        yield
        return
    at: list[tuple[str, int] | None] = []

    def ring(signum: int, frame: FrameType | None) -> None:
        at.append(_frame_in(frame, file) or user_frame(frame))
        raise _StillRunning

    handler = signal.signal(signal.SIGALRM, ring)
    started = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    except _StillRunning as error:
        line = at[0]
        raise TargetError(
            f"import still running after {limit:g} s" + (f" at line {line[1]} (training loop?)" if line else ""),
            where=f"{shown(line[0])}:{line[1]}" if line else spec.spec,
            hint=f"move it under {_GUARD} then run {next_line(spec)}",
        ) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if earlier_s:
            signal.setitimer(signal.ITIMER_REAL, max(earlier_s - (time.monotonic() - started), 1e-3), interval_s)


def _frame_in(frame: FrameType | None, file: Path | None) -> tuple[str, int] | None:
    """(file, line) of the outermost frame of `file`: the top-level statement that does not end."""
    found = None
    while frame is not None and file is not None:
        if frame.f_code.co_filename == str(file):
            found = (frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return found


def import_failure(spec: TargetSpec, file: Path | None, error: BaseException) -> TargetError:
    """The TargetError that tells why importing the target raised `error`."""
    where = user_place(error) or spec.spec
    if isinstance(error, SystemExit):
        return TargetError(
            f"import called sys.exit({'' if error.code is None else repr(error.code)})",
            where=where,
            hint=f"move the script's part under {_GUARD} then run {next_line(spec)}",
        )
    if isinstance(error, SyntaxError):
        place = f"{shown(error.filename)}:{error.lineno}" if error.filename else where
        return TargetError(f"syntax error: {error.msg}", where=place, hint=f"mend it, then run {next_line(spec)}")
    if isinstance(error, ImportError) and "relative import" in str(error) and file is not None:
        return _relative(spec, file, error, where)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _missing(spec, file, error.name, where)
    return TargetError(
        f"import failed: {first_line(error)}", where=where, hint=f"mend it until this runs: {_import_line(file, spec)}"
    )


def _import_line(file: Path | None, spec: TargetSpec) -> str:
    if file is None:
        return f'{sys.executable} -c "import {spec.spec.split(":")[0]}"'
    return f"{sys.executable} {shown(file)}"


def _relative(spec: TargetSpec, file: Path, error: ImportError, where: str) -> TargetError:
    if "beyond top-level" in str(error):
        top = file.parent
        while (top.parent / "__init__.py").is_file():
            top = top.parent
        return TargetError(
            f"relative import: it goes above the package {top.name!r}",
            where=where,
            hint=f"touch {shown(top.parent / '__init__.py')} && {next_line(spec)}",
        )
    package = file.parent
    attr = f":{spec.spec.rpartition(':')[2]}" if ":" in spec.spec else ":Net"
    go = "" if package.parent == Path.cwd() else f"cd {shown(package.parent)} && "
    return TargetError(
        f"relative import: {file.name} lies in the folder {package.name!r}, which is no package",
        where=where,
        hint=go + next_line(spec, target=f"{package.name}.{file.stem}{attr}"),
    )


def _missing(spec: TargetSpec, file: Path | None, name: str, where: str) -> TargetError:
    message = f"import failed: No module named {name!r}"
    top = name.split(".")[0]
    if file is None and spec.spec.split(":")[0].split(".")[0] == top:
        return TargetError(
            message,
            where=spec.spec,
            hint=f"run it from the folder that holds {top!r}, or give the file: {plain_line(spec, 'path/to/file.py')}",
        )
    for folder in [] if file is None else list(file.parents)[1:6]:
        if (folder / f"{top}.py").is_file() or (folder / top).is_dir():
            return TargetError(
                message, where=where, hint=f"it lies in {shown(folder)}: PYTHONPATH={shown(folder)} {next_line(spec)}"
            )
    package = _INSTALLED_AS.get(top, top)
    return TargetError(
        message, where=where, hint=f"install it into this environment: {sys.executable} -m pip install {package}"
    )
