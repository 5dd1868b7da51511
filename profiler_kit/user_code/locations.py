"""Locations in the user's code, as ``file.py:41``, and short texts for exceptions."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import FrameType

import torch

from profiler_kit.errors import KitError, TargetError
from profiler_kit.user_code.boundary import EscapedError, error_text, user_boundary

_LIBRARIES = tuple(
    str(Path(folder).resolve())
    for folder in {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        str(Path(torch.__file__).parent),
        str(Path(__file__).resolve().parent.parent),  # this package
    }
)

_ADDRESS = re.compile(r" (object )?at 0x[0-9a-f]+")
LINE_CHARACTERS = 400  # enough for torch's longest messages, but not for a printed tensor


def display_path(path: str | Path) -> str:
    """`path` for display: relative to the working directory if it is inside."""
    full_path = Path(path).resolve()
    folder = Path.cwd()
    return str(full_path.relative_to(folder)) if full_path.is_relative_to(folder) else str(full_path)


def is_user_code(filename: str) -> bool:
    """Whether `filename` contains user code, as opposed to a library, the import machinery or profiler_kit."""
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    return not any(path.is_relative_to(folder) for folder in _LIBRARIES) and not is_installed_package(filename)


def is_installed_package(filename: str) -> bool:
    """Whether `filename` belongs to an installed package, also one of ``pip install --target``."""
    path = Path(filename).resolve()
    if "site-packages" in path.parts:
        return True
    return any(
        path.is_relative_to(folder) and path.relative_to(folder).parts[0] in names
        for folder, names in _target_folders(tuple(sys.path))
    )


@lru_cache(maxsize=8)
def _target_folders(search_path: tuple[str, ...]) -> tuple[tuple[str, frozenset[str]], ...]:
    """The other folders of `search_path` into which packages were installed, with the names of what was installed."""
    installed = []
    for folder in {Path(entry).resolve() for entry in search_path if isinstance(entry, str) and entry}:
        if "site-packages" in folder.parts:
            continue
        records = [file.read_text(encoding="utf-8", errors="replace") for file in folder.glob("*.dist-info/RECORD")]
        if records:
            names = frozenset(
                line.partition("/")[0].partition(",")[0] for text in records for line in text.splitlines()
            )
            installed.append((str(folder), names))
    return tuple(installed)


def user_lines(error: BaseException) -> Iterator[tuple[str, int]]:
    """(file, line) of each frame of user code in the traceback of `error`, the innermost last."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_user_code(frame.f_code.co_filename):
            yield frame.f_code.co_filename, line


def user_place(error: BaseException) -> str | None:
    """The innermost line of user code in the traceback of `error`, as ``file.py:41``; None without one."""
    lines = list(user_lines(error))
    return f"{display_path(lines[-1][0])}:{lines[-1][1]}" if lines else None


def user_source(error: BaseException) -> str:
    """The source line at `user_place`, stripped; empty if unknown."""
    lines = list(user_lines(error))
    return linecache.getline(*lines[-1]).strip() if lines else ""


def library_place(error: BaseException) -> str | None:
    """The innermost line of an installed package other than torch, or of user code: ``transformers/masking_utils.py:344``."""
    excluded = (Path(torch.__file__).parent, Path(__file__).resolve().parent.parent)
    lines = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith("<")
        and ("site-packages" in frame.f_code.co_filename or is_user_code(frame.f_code.co_filename))
        and not any(Path(frame.f_code.co_filename).is_relative_to(folder) for folder in excluded)
    ]
    return f"{lines[-1][0].rpartition('site-packages/')[2]}:{lines[-1][1]}" if lines else None


def user_frame(frame: FrameType | None) -> tuple[str, int] | None:
    """(file, line) of the innermost frame of user code at or above `frame`; None without one."""
    while frame is not None:
        if is_user_code(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def one_line_message(error: BaseException) -> str:
    """``Type: message`` of `error` with the first line of its message, shortened if long; the type alone without a message.

    Addresses of objects are left out.
    """
    if isinstance(error, EscapedError):
        error = error.error
    lines = _ADDRESS.sub("", error_text(error).strip()).splitlines()
    if not lines:
        return type(error).__name__
    message = lines[0] if len(lines[0]) <= LINE_CHARACTERS else f"{lines[0][: LINE_CHARACTERS - 3]}..."
    return f"{type(error).__name__}: {message}"


def exit_message(error: SystemExit) -> str:
    """A message for a SystemExit of the model: ``the model called sys.exit(3)``."""
    return f"the model called sys.exit({'' if error.code is None else repr(error.code)})"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` is an out-of-memory error of the host or the device."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    words = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(word in error_text(error) for word in words)


@contextmanager
def user_errors(action: str, *, hint: str, where: str | None = None) -> Iterator[None]:
    """Turn exceptions of user code inside the block into a TargetError: "`action` raised ...".

    The location is the line of user code, or `where`. KitErrors and out-of-memory errors pass through.
    """
    try:
        with user_boundary():
            yield
    except KitError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise TargetError(
            f"{action} raised {one_line_message(error)}", where=user_place(error) or where, hint=hint
        ) from error


def type_with_article(value: object) -> str:
    """The type of `value` with its article, for messages: ``a list``, ``an int`` or ``None``."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
