"""The command line: arguments, printing and exit codes."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from profiler_kit.cli import streams
from profiler_kit.cli.commands import Outcome
from profiler_kit.errors import INTERRUPTED, OK, TARGET_FAILED, USAGE, KitError

# A scheduler, a supervisor or a closed terminal sends these. By default they kill Python without any cleanup, which
# leaves child processes and git worktrees behind.
TERMINATION_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # fmt: skip
PACKAGE_FOLDER: Final = Path(__file__).resolve().parent.parent
REFUSED: Final = tuple(
    getattr(errno, name)
    for name in ("EMFILE", "ENFILE", "ENOSPC", "EDQUOT", "EFBIG", "ENOMEM", "EAGAIN", "EROFS")
    if hasattr(errno, name)
)  # a resource that this process needs and does not get
MAX_PATH_CHARS: Final = 100  # of a path in an error that the system refuses as too long


def entry() -> Callable[[], None]:
    """Run the command line and exit the process with its status: the console script. Returns a program that takes over.

    A command that runs user code runs in a child process, and this one watches it.
    """
    streams.open_standard_streams()
    outcome = _outcome(sys.argv[1:], supervised=True)
    if isinstance(outcome, int):
        streams.exit_process(outcome)
    return outcome


def main(argv: Sequence[str] | None = None, *, supervised: bool = False) -> int:
    """Run the command in `argv` (default: ``sys.argv[1:]``) and return its exit status.

    An expected error is printed on stderr with its hint, and its exit code is returned. SIGTERM and SIGHUP stop the
    command like Ctrl-C: child processes end, the git worktree is removed, finished measurements are kept. With `supervised`,
    user code runs in a child process.
    """
    outcome = _outcome(sys.argv[1:] if argv is None else argv, supervised=supervised)
    if isinstance(outcome, int):
        return outcome
    outcome()
    return OK


def _outcome(arguments: Sequence[str], *, supervised: bool) -> Outcome:
    with _signals_as_keyboard_interrupt(TERMINATION_SIGNALS):
        try:
            return _run(arguments, supervised=supervised)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED
        except Exception as error:  # noqa: BLE001 Python would exit with 1, which means an exceeded budget
            return _unexpected_status(error)


def _run(arguments: Sequence[str], *, supervised: bool) -> Outcome:
    from profiler_kit.cli.parser import build_parser

    try:
        options = build_parser(arguments).parse_args(arguments)
    except SystemExit as system_exit:  # after --help and --version
        return system_exit.code if isinstance(system_exit.code, int) else OK
    except KitError as error:
        streams.print_message(f"error: {error}")
        return error.exit_code
    if supervised and options.command.runs_user_code:
        from profiler_kit.cli.supervised import run_supervised

        return run_supervised(options, lambda: _status(options))
    return _outcome_of(options)


def _status(options: argparse.Namespace) -> int:
    """Run the command of `options`, print its error, and return its exit status."""
    outcome = _outcome_of(options)
    assert isinstance(outcome, int), "a program takes over the process that the user started"
    return outcome


def _outcome_of(options: argparse.Namespace) -> Outcome:
    from profiler_kit.cli import output

    try:
        outcome: Outcome = options.command.run(options)
        output.flush()  # inside the try: a closed pipe is not an error
        output.run_final_checks()
    except KitError as error:
        streams.print_message(f"error: {error}")
        return error.exit_code
    except BrokenPipeError:
        # The reader (head, less) closed the pipe. Python must not fail again when it flushes at exit.
        streams.discard_stdout()
        return OK
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 Python would exit with 1, which means an exceeded budget
        return _unexpected_status(error)
    return outcome


def _unexpected_status(error: BaseException) -> int:
    """Print an error that is not a KitError, and return the exit status. Only one of this package has a traceback."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # from any option that takes a path
        path = streams.escape_control_characters(str(error.filename)[:MAX_PATH_CHARS])
        streams.print_message(f"error: {path}...: not a path of a file: {error.strerror}\nhint: use a shorter path")
        return USAGE
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in REFUSED):
        streams.print_message(
            f"error: the system refused to go on: {getattr(error, 'strerror', None) or 'out of memory'}\n"
            "hint: free disk space and memory, and check the limits of this process: ulimit -a"
        )
        return TARGET_FAILED
    from profiler_kit.pipeline.packages import missing_package

    if isinstance(error, Exception) and (missing := missing_package(error)) is not None:
        streams.print_message(f"error: {missing}")
        return missing.exit_code
    shadowing_file = _shadowing_file(error)
    if shadowing_file is not None:
        streams.print_message(
            f"error: {shadowing_file.name}: this file shadows the module {shadowing_file.stem!r} that a library imports "
            f"({type(error).__name__})\n"
            "hint: rename the file, or run from another folder"
        )
        return TARGET_FAILED
    if "profiler_kit.user_code.locations" in sys.modules:  # user code may have run
        from profiler_kit.pipeline.target_errors import target_error

        if (failure := target_error(error, "the target")) is not None:
            streams.print_message(f"error: {failure}")
            return failure.exit_code
    if (library := _failed_import(error)) is not None:
        streams.print_message(
            f"error: importing {library} failed: {type(error).__name__}: {error}\n"
            f"hint: find the cause with {sys.executable} -c 'import {library}'"
        )
        return TARGET_FAILED
    traceback.print_exception(error)
    streams.print_message(
        f"error: internal error in profiler_kit ({type(error).__name__})\n"
        "hint: report this bug with the traceback above; your model is not the cause"
    )
    return TARGET_FAILED


@contextlib.contextmanager
def _signals_as_keyboard_interrupt(signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Raise KeyboardInterrupt on the first of `signals` inside the block; ignore later ones, so that cleanup finishes.

    Signals that are ignored (nohup) or that have another handler are left alone. Does nothing outside the main thread,
    where Python does not handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled_signals = [number for number in signals if signal.getsignal(number) is signal.SIG_DFL]

    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            raise KeyboardInterrupt

    for number in handled_signals:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in handled_signals:
            signal.signal(number, signal.SIG_DFL)


def _failed_import(error: BaseException) -> str | None:
    """The library whose import by this package raised `error`; None for any other error."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    last = max((n for n, code in enumerate(codes) if Path(code.co_filename).is_relative_to(PACKAGE_FOLDER)), default=-1)
    imported = next((code for code in codes[last + 1 :] if not code.co_filename.startswith("<")), None)
    if imported is None or imported.co_name != "<module>":
        return None
    _, folder, name = imported.co_filename.rpartition(f"site-packages{os.sep}")
    path = Path(name)
    if folder:
        return path.parts[0].removesuffix(".py")
    return path.parent.name if path.name == "__init__.py" else path.stem


def _shadowing_file(error: BaseException) -> Path | None:
    """The file of the working directory (``random.py``) that shadows a module and so caused `error`; None if there is none."""
    try:
        folder = Path.cwd()
    except OSError:  # it was deleted
        return None
    from profiler_kit.foreign import attribute_of
    from profiler_kit.pipeline.packages import PACKAGES

    for name in (*sys.stdlib_module_names, *(name for name, _ in PACKAGES)):
        origin = attribute_of(sys.modules.get(name), "__file__", str)
        if origin is not None:
            path = Path(origin).resolve()
            path = path.parent if path.name == "__init__.py" else path
            if path.parent == folder:
                return path
    importer = PACKAGE_FOLDER
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.startswith("<"):
            continue
        file = Path(frame.f_code.co_filename).resolve()
        imported_by_library = (
            importer != PACKAGE_FOLDER and not importer.is_relative_to(PACKAGE_FOLDER) and importer.parent != folder
        )
        if file.parent == folder and frame.f_code.co_name == "<module>" and imported_by_library:
            return file
        importer = file
    return None
