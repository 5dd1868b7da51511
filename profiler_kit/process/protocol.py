"""How a child process of ours and its parent talk: a job and a result as files, progress in marked lines of stdout."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

OnProgress = Callable[[str], None]  # gets each line of progress that a user may see

JOB_FILE, RESULT_FILE = "job.json", "result.json"  # both in the folder that the parent makes for the child
PROGRESS: Final = "pk:progress:"  # begins the lines that are meant for the user
GO: Final = "go"  # the line that lets a waiting worker use the device


def silent(_: str) -> None:
    """An `OnProgress` that shows nothing."""


@contextlib.contextmanager
def progress_apart() -> Iterator[OnProgress]:
    """In the child: a function that reports progress to the parent's user; all else that is printed goes to stderr."""
    # By descriptor as well: a library that prints from C, or a program that the model starts, must not get between the lines.
    to_parent = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(text: str) -> None:
        print(f"{PROGRESS}{text}", file=to_parent, flush=True)

    with contextlib.redirect_stdout(sys.stderr), to_parent:
        yield say


def write_result(text: str, job_file: Path) -> None:
    """In the child: leaves `text` as the result beside its `job_file`, whole or not at all."""
    result = job_file.with_name(RESULT_FILE)
    partial = result.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(result)


def progress_of(line: str) -> str | None:
    """In the parent: the progress that a line of a child's stdout reports; None for any other line."""
    return line.removeprefix(PROGRESS) if line.startswith(PROGRESS) else None
