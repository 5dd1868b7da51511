"""The protocol between a worker process and its parent: job and result files, and progress as marked lines on stdout."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

OnProgress = Callable[[str], None]  # called with each line of progress

JOB_FILE, RESULT_FILE = "job.json", "result.json"  # in the folder that the parent creates for the child
PROGRESS: Final = "pk:progress:"  # prefix of progress lines
START_LINE: Final = "go"  # allows a waiting worker to use the device
END_LINE: Final = "enough"  # tells a worker that waits for its turn to return what it has measured
PREPARED: Final = "waiting for the device"  # the progress of a worker that waits for it


def ignore_progress(_: str) -> None:
    """Ignore progress."""


@contextlib.contextmanager
def progress_channel() -> Iterator[OnProgress]:
    """In the child: yield a function that sends progress to the parent; other output goes to stderr inside the block."""
    # Redirect the file descriptor too, for C libraries and subprocesses of the model.
    to_parent = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send_progress(text: str) -> None:
        print(f"{PROGRESS}{text}", file=to_parent, flush=True)

    with contextlib.redirect_stdout(sys.stderr), to_parent:
        yield send_progress


def write_result(text: str, job_file: Path) -> None:
    """In the child: write `text` as the result file next to `job_file`, completely or not at all."""
    result = job_file.with_name(RESULT_FILE)
    partial = result.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(result)


def parse_progress(line: str) -> str | None:
    """In the parent: the progress text in a line of the child's stdout; None for any other line."""
    return line.removeprefix(PROGRESS) if line.startswith(PROGRESS) else None
