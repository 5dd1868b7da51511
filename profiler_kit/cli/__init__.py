"""argv, printing and exit codes: the command line's outermost room."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from profiler_kit.cli import streams
from profiler_kit.errors import INTERRUPTED, OK, TARGET_FAILED, KitError

# What a job's end, a supervisor or a closed terminal sends: Python would die at once, leaving children and worktrees behind.
ENDING_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # fmt: skip
OURS: Final = Path(__file__).resolve().parent.parent


def entry() -> NoReturn:
    """The console script: runs the command line and ends the process with its status."""
    streams.make_usable()
    streams.leave(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command in `argv` (default: the process's own) and returns its exit status.

    Every expected error ends here: one message with a hint on stderr, and its exit code. SIGTERM and SIGHUP end the
    command as Ctrl-C does: children are ended, the worktree goes, what was measured is kept.
    """
    with _as_ctrl_c(ENDING_SIGNALS):
        try:
            return _run(argv)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    from profiler_kit.cli import output
    from profiler_kit.cli.parser import parser

    words = sys.argv[1:] if argv is None else argv
    try:
        try:
            options = parser(words).parse_args(words)
        except SystemExit as end:  # after --help and --version
            return end.code if isinstance(end.code, int) else OK
        status: int = options.command.run(options)
        output.flush()  # here, where a reader that is gone can still be told from an error
    except KitError as error:
        print(f"error: {streams.printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # the reader (head, less) has seen enough; keep Python from complaining again when it flushes at exit
        streams.to_nowhere()
        return OK
    except Exception as error:  # noqa: BLE001 left alone, Python would end with 1, which says that a budget is broken
        hiding = _hiding_file(error)
        if hiding is not None:
            print(
                f"error: {hiding.name}: a library that imports its own {hiding.stem!r} got this file instead "
                f"({type(error).__name__})\n"
                "hint: give the file another name, or run from another folder",
                file=sys.stderr,
            )
            return TARGET_FAILED
        traceback.print_exc()
        print(
            f"error: {type(error).__name__} in profiler_kit itself\n"
            "hint: this is a bug of the tool, not of your model: report it with the lines above",
            file=sys.stderr,
        )
        return TARGET_FAILED
    return status


@contextlib.contextmanager
def _as_ctrl_c(signals: Sequence[signal.Signals]) -> Iterator[None]:
    """While it lasts, the first of `signals` raises KeyboardInterrupt; further ones don't disturb the end it brings.

    A signal that is ignored (nohup) or that somebody else handles stays so. Only in the main thread, where Python handles
    signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in signals if signal.getsignal(number) is signal.SIG_DFL]

    ending = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ending
        if not ending:
            ending = True
            raise KeyboardInterrupt

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _hiding_file(error: BaseException) -> Path | None:
    """The file here (``random.py``) whose name hides what Python or a library imports, if that is behind `error`, else None."""
    here = Path.cwd()
    for name in sys.stdlib_module_names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and Path(file).resolve().parent == here:
            return Path(file)
    importer = OURS
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.startswith("<"):
            continue
        file = Path(frame.f_code.co_filename).resolve()
        wanted_by_library = importer != OURS and not importer.is_relative_to(OURS) and importer.parent != here
        if file.parent == here and frame.f_code.co_name == "<module>" and wanted_by_library:
            return file
        importer = file
    return None
