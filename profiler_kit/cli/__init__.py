"""The command line: arguments, printing and exit codes."""

from __future__ import annotations

import contextlib
import errno
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from profiler_kit.cli import streams, terminal
from profiler_kit.errors import INTERRUPTED, OK, TARGET_FAILED, USAGE, KitError
from profiler_kit.foreign import attribute_of

# A scheduler, a supervisor or a closed terminal sends these. By default they kill Python without any cleanup, which
# leaves child processes and git worktrees behind.
TERMINATION_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # fmt: skip
PACKAGE_FOLDER: Final = Path(__file__).resolve().parent.parent
MAX_PATH_CHARS: Final = 100  # of a path in an error that the system refuses as too long


def entry() -> NoReturn:
    """Run the command line and exit the process with its status: the console script."""
    streams.open_standard_streams()
    streams.exit_process(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: ``sys.argv[1:]``) and return its exit status.

    An expected error is printed on stderr with its hint, and its exit code is returned. SIGTERM and SIGHUP stop the
    command like Ctrl-C: child processes end, the git worktree is removed, finished measurements are kept.
    """
    with _signals_as_keyboard_interrupt(TERMINATION_SIGNALS):
        try:
            return _run(argv)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    from profiler_kit.cli import output
    from profiler_kit.cli.parser import build_parser

    arguments = sys.argv[1:] if argv is None else argv
    try:
        try:
            options = build_parser(arguments).parse_args(arguments)
        except SystemExit as system_exit:  # after --help and --version
            return system_exit.code if isinstance(system_exit.code, int) else OK
        status: int = options.command.run(options)
        output.flush()  # inside the try: a closed pipe is not an error
    except KitError as error:
        terminal.print_message(f"error: {error}")
        return error.exit_code
    except BrokenPipeError:
        # The reader (head, less) closed the pipe. Python must not fail again when it flushes at exit.
        streams.discard_stdout()
        return OK
    except Exception as error:  # noqa: BLE001 Python would exit with 1, which means an exceeded budget
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # from any option that takes a path
            path = streams.escape_control_characters(str(error.filename)[:MAX_PATH_CHARS])
            terminal.print_message(
                f"error: {path}...: not a path of a file: {error.strerror}\nhint: use a shorter path"
            )
            return USAGE
        from profiler_kit.pipeline.packages import missing_package

        if (missing := missing_package(error)) is not None:
            terminal.print_message(f"error: {missing}")
            return missing.exit_code
        shadowing_file = _shadowing_file(error)
        if shadowing_file is not None:
            terminal.print_message(
                f"error: {shadowing_file.name}: this file shadows the module {shadowing_file.stem!r} that a library imports "
                f"({type(error).__name__})\n"
                "hint: rename the file, or run from another folder"
            )
            return TARGET_FAILED
        traceback.print_exc()
        terminal.print_message(
            f"error: internal error in profiler_kit ({type(error).__name__})\n"
            "hint: report this bug with the traceback above; your model is not the cause"
        )
        return TARGET_FAILED
    return status


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


def _shadowing_file(error: BaseException) -> Path | None:
    """The file of the working directory (``random.py``) that shadows a module and so caused `error`; None if there is none."""
    folder = Path.cwd()
    for name in sys.stdlib_module_names:
        origin = attribute_of(sys.modules.get(name), "__file__", str)
        if origin is not None and Path(origin).resolve().parent == folder:
            return Path(origin)
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
