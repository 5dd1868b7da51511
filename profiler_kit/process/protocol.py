"""How a child process of ours and its parent talk: progress in marked lines of stdout, the result as a file."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from profiler_kit.records.saved import Saved
from profiler_kit.records.serde import dumps

Say = Callable[[str], None]

PROGRESS: Final = "pk:progress:"  # begins the lines that are meant for the user
GO: Final = "go"  # the line that a waiting worker is told


@contextlib.contextmanager
def streams_apart() -> Iterator[Say]:
    """In the child: a function that tells the parent's user something; whatever else is printed meanwhile goes to stderr."""
    # By descriptor as well: a library that prints from C, or a program that the model starts, must not get between the lines.
    to_parent = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(text: str) -> None:
        print(f"{PROGRESS}{text}", file=to_parent, flush=True)

    with contextlib.redirect_stdout(sys.stderr), to_parent:
        yield say


def write_result(record: Saved, path: str) -> None:
    """In the child: leaves `record` as JSON at `path`, whole or not at all."""
    result = Path(path)
    partial = result.with_suffix(".partial")
    partial.write_text(dumps(record), encoding="utf-8")
    partial.replace(result)


def hears(say: Say | None) -> Say:
    """In the parent: what takes a child's lines of stdout, and hands those that are progress to `say`."""

    def on_line(line: str) -> None:
        if say is not None and line.startswith(PROGRESS):
            say(line.removeprefix(PROGRESS))

    return on_line
