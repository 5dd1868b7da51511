"""The command `trigger`: a program that ``run --later`` started records its next steps."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from profiler_kit import errors
from profiler_kit.cli.commands import Command
from profiler_kit.errors import TargetError, UsageError

ANSWER_S: Final = 30.0  # for a process to begin


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the process."""
    parser.add_argument(
        "process", metavar="PID|DIR",
        help="the process number of the program, of one of its ranks or of their launcher, on this machine; or its --out folder",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Write the request, and wait until a process has begun. Raises UsageError, TargetError."""
    from profiler_kit.integrations.attachment import STARTED, folder_of, request

    folder = folder_of(options.process)
    try:
        wanted = request(folder)
    except OSError as error:
        raise UsageError(
            f"cannot write the request: {error.strerror}", where=str(folder), hint="run it as the user of the program"
        ) from error
    report = folder / wanted.name
    until_s = time.monotonic() + ANSWER_S
    while not (report / STARTED).exists():
        if time.monotonic() > until_s:
            raise TargetError(
                f"no process has answered within {ANSWER_S:g} s",
                where=str(folder),
                hint="a program answers once it has imported torch, and one recording after the other; it may still answer",
            )
        time.sleep(0.1)
    print(f"the next steps are recorded; the report will be {report}/report.html", file=sys.stderr)
    return errors.OK


COMMAND: Final = Command(
    name="trigger",
    summary="let a program that run --later started record its next steps",
    examples=("trigger 4711",),
    add_options=add_options,
    run=run,
    runs_user_code=False,
)
