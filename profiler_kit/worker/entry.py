"""What all worker processes have in common: the job read, its result left, the process ended, and failures in one line."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from profiler_kit import process
from profiler_kit.errors import KitError
from profiler_kit.loading.place import exit_line, first_line, user_place
from profiler_kit.process.protocol import OnProgress, progress_apart, write_result
from profiler_kit.records.saved import Saved
from profiler_kit.records.serde import dumps, from_json

Job = TypeVar("Job")


def serve(kind: type[Job], work: Callable[[Job, OnProgress], Saved], *, under_profiler: bool = False) -> NoReturn:
    """Does `work` on the job in the file that the command line names, leaves what it returns as the result, and ends.

    The exit status is 0 whenever a result was written. `under_profiler`: another program runs this process, and has work of
    its own to do when it ends regularly.
    """
    if not under_profiler:
        process.end_with_parent()
    file = Path(sys.argv[1])
    job = from_json(kind, json.loads(file.read_text(encoding="utf-8")), str(file))
    with progress_apart() as say:
        write_result(dumps(work(job, say)), file)
    sys.stderr.flush()
    if under_profiler and all(
        thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()
    ):
        sys.exit(0)
    os._exit(0)  # threads that the user's code left running would keep the process for ever


def failure_line(error: BaseException) -> str:
    """``net.py:41: ValueError: no``: what went wrong in one line, with the place in the user's code where there is one."""
    if isinstance(error, KitError):
        return str(error).partition("\n")[0]
    text = exit_line(error) if isinstance(error, SystemExit) else first_line(error)
    place = user_place(error)
    return f"{place}: {text}" if place else text
