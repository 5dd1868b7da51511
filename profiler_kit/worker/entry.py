"""The common entry of all worker processes: reads the job, writes the result, ends the process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from profiler_kit import process
from profiler_kit.errors import KitError
from profiler_kit.process.protocol import OnProgress, progress_channel, write_result
from profiler_kit.records.saved import Saved
from profiler_kit.records.serde import dumps, from_json
from profiler_kit.user_code.locations import exit_message, one_line_message, user_place

Job = TypeVar("Job")


def serve(kind: type[Job], work: Callable[[Job, OnProgress], Saved]) -> NoReturn:
    """Run `work` on the job in the file given on the command line, write its result, and exit.

    The exit status is 0 whenever a result was written.
    """
    process.exit_with_parent()
    file = Path(sys.argv[1])
    job = from_json(kind, json.loads(file.read_text(encoding="utf-8")), str(file))
    with progress_channel() as on_progress:
        write_result(dumps(work(job, on_progress)), file)
    sys.stderr.flush()
    os._exit(0)  # threads started by the user's code would keep the process alive


def failure_line(error: BaseException) -> str:
    """The error in one line, with its place in the user's code where known: ``net.py:41: ValueError: no``."""
    if isinstance(error, KitError):
        return error.place_and_message
    text = exit_message(error) if isinstance(error, SystemExit) else one_line_message(error)
    place = user_place(error)
    return f"{place}: {text}" if place else text
