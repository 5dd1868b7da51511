"""Where in the user's own code something happened, as ``file.py:41``."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from profiler_kit.errors import KitError, TargetError

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

LINE_CHARACTERS = 400  # torch's own longest explanations fit; a message that holds a printed tensor or file does not


def shown(path: str | Path) -> str:
    """`path` as a person would type it here: relative to the working directory where it lies below it."""
    full = Path(path).resolve()
    here = Path.cwd()
    return str(full.relative_to(here)) if full.is_relative_to(here) else str(full)


def is_users(filename: str) -> bool:
    """Whether the code of `filename` is the user's: no library's, no import machinery's, not ours."""
    if filename.startswith("<"):
        return False
    full = Path(filename).resolve()
    return not any(full.is_relative_to(folder) for folder in _LIBRARIES) and "site-packages" not in full.parts


def user_lines(error: BaseException) -> Iterator[tuple[str, int]]:
    """(file, line) of each frame of the user's code that `error` passed through, innermost last."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_users(frame.f_code.co_filename):
            yield frame.f_code.co_filename, line


def user_place(error: BaseException) -> str | None:
    """``file.py:41``: the innermost line of the user's code that `error` passed through; None when there is none."""
    lines = list(user_lines(error))
    return f"{shown(lines[-1][0])}:{lines[-1][1]}" if lines else None


def user_source(error: BaseException) -> str:
    """The text of the line at `user_place`, stripped; empty when unknown."""
    lines = list(user_lines(error))
    return linecache.getline(*lines[-1]).strip() if lines else ""


def library_place(error: BaseException) -> str | None:
    """``transformers/masking_utils.py:344``: the innermost line of an installed package other than torch, or the user's."""
    ours = (Path(torch.__file__).parent, Path(__file__).resolve().parent.parent)
    lines = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith("<")
        and ("site-packages" in frame.f_code.co_filename or is_users(frame.f_code.co_filename))
        and not any(Path(frame.f_code.co_filename).is_relative_to(folder) for folder in ours)
    ]
    return f"{lines[-1][0].rpartition('site-packages/')[2]}:{lines[-1][1]}" if lines else None


def user_frame(frame: FrameType | None) -> tuple[str, int] | None:
    """(file, line) of the innermost user's frame at or above `frame`."""
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def first_line(error: BaseException) -> str:
    """``Type: message`` of `error`, its first line alone and not all of a long one; the type alone when it says nothing."""
    text = str(error).strip().splitlines()
    if not text:
        return type(error).__name__
    said = text[0] if len(text[0]) <= LINE_CHARACTERS else f"{text[0][: LINE_CHARACTERS - 3]}..."
    return f"{type(error).__name__}: {said}"


def exit_line(error: SystemExit) -> str:
    """``the model called sys.exit(3)``: what ended the process, in words."""
    return f"the model called sys.exit({'' if error.code is None else repr(error.code)})"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory, of the host or of the device, ran out."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    words = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


@contextmanager
def user_errors(what: str, *, hint: str, where: str | None = None) -> Iterator[None]:
    """Raises TargetError that `what` raised, around what the user's code in the block raises.

    Its place is the user's line, else `where`. The kit's own errors go through, and so does out of memory.
    """
    try:
        yield
    except KitError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise TargetError(f"{what} raised {first_line(error)}", where=user_place(error) or where, hint=hint) from error


def a_kind(value: object) -> str:
    """``a list``, ``an int`` or ``None``: what `value` is, in a sentence."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
