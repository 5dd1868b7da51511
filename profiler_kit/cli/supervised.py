"""A command in a process of its own, and the error if that process ends without a result."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from profiler_kit.cli import output, streams
from profiler_kit.errors import INTERRUPTED, TARGET_FAILED, KitError
from profiler_kit.process.ending import Ending
from profiler_kit.process.supervision import is_supervised, supervise

_TARGETS: Final = ("target", "targets", "models", "a")  # of options, by command


def run_supervised(options: argparse.Namespace, command: Callable[[], int]) -> int:
    """The exit status of `command`, which runs in a child process. Prints its stdout once it is complete."""
    if is_supervised() or not hasattr(os, "fork"):
        return command()
    result = supervise(lambda: _run_held(command))
    if isinstance(result, Ending):
        return _report_ending(result, options)
    head, _, content = result.partition(b"\0\0")
    status, *pages = head.decode(errors="surrogateescape").split("\0")
    try:
        with output.stdout_errors():
            sys.stdout.flush()
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
    except BrokenPipeError:  # the reader (head, less) has left
        streams.discard_stdout()
    except KitError as error:
        streams.print_message(f"error: {error}")
        return error.exit_code
    for page in pages:
        output.open_in_browser(Path(page), options)
    return int(status)


def _run_held(command: Callable[[], int]) -> bytes:
    """In the child: the exit status of `command`, the pages to open, and its stdout."""
    held = streams.hold_output()
    try:
        status = command()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = INTERRUPTED
    return "\0".join([str(status), *held.pages]).encode(errors="surrogateescape") + b"\0\0" + held.getvalue()


def _report_ending(ending: Ending, options: argparse.Namespace) -> int:
    """Print where the child ended, and return the exit status."""
    from profiler_kit.temporary_files import remove_ownerless_folders

    remove_ownerless_folders(tempfile.gettempdir())
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K\x1b[?25h")  # the line of progress, and its hidden cursor
    error = _ending_error(ending, _target(options))
    try:
        if options.command.report_failure is not None:
            options.command.report_failure(options, error)
            output.flush()
        raise error
    except KitError as failure:
        streams.print_message(f"error: {failure}")
    return TARGET_FAILED


def _ending_error(ending: Ending, target: str) -> KitError:
    where = target
    if ending.file is not None:
        path = Path(ending.file)
        where = f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{ending.line}"
    place = f" in {ending.function}()" if ending.function.isidentifier() else ""
    stage = f" ({ending.stage})" if ending.stage else ""
    return KitError(f"the process {ending.text}{place}{stage}, so there is no result", where=where, hint=_hint(ending))


def _hint(ending: Ending) -> str:
    if ending.limit_s is not None:
        return "make the code at this line end, or raise --timeout"
    if ending.status == -signal.SIGKILL:
        return "if nothing killed it on purpose, memory ran out: use a smaller model or batch"
    if ending.status < 0:
        return "native code crashed: an operator may need a kernel for meta tensors (torch.library.register_fake)"
    return "remove the code that ends the process, or raise an exception there"


def _target(options: argparse.Namespace) -> str:
    """The target of the command line: its place where the stack names none."""
    value = next((value for name in _TARGETS if (value := getattr(options, name, None))), options.verb)
    return value if isinstance(value, str) else ", ".join(value)
