"""Standard streams that are always usable, and a process exit that does not wait for other threads."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from profiler_kit.errors import UsageError


def open_standard_streams() -> None:
    """Open closed standard streams on the null device, and escape characters that a stream cannot encode.

    The system would give the descriptor of a closed stream to the next opened file, and output would go into that file.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor: this one
    if held_output is not None:
        if sys.stdout.closed:
            sys.stdout = _text_stream(held_output)
    elif sys.stdout is None or sys.stdout.closed:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 stays open as long as the process
    if sys.stderr is None or sys.stderr.closed:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


class HeldOutput(io.BytesIO):
    """Collects stdout in memory until the process that watches this one prints it.

    Descriptor 1 becomes stderr, for whatever user code and its libraries, threads and exit handlers print. `pages` are
    files to open in a browser.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[str] = []
        self._is_terminal = sys.stdout.isatty()
        self._descriptor = os.dup(1)
        os.dup2(2, 1)

    def isatty(self) -> bool:
        """Whether the real stdout is a terminal."""
        return self._is_terminal

    def fileno(self) -> int:
        """A descriptor of the real stdout, for its width and identity."""
        return self._descriptor

    def close(self) -> None:
        """Do nothing: user code cannot take the report away."""


held_output: HeldOutput | None = None


def hold_output() -> HeldOutput:
    """Collect the stdout of this process from now on."""
    global held_output
    held_output = HeldOutput()
    sys.stdout = _text_stream(held_output)
    return held_output


def _text_stream(held: HeldOutput) -> io.TextIOWrapper:
    return io.TextIOWrapper(held, encoding=sys.stdout.encoding, errors=sys.stdout.errors, write_through=True)


_COMMAND: Final = re.compile(r"^([^\S\n]*)::", re.MULTILINE)  # runners skip white space before it


def escape_control_characters(text: str) -> str:
    """`text` with control characters escaped, except line ends: a name from a file must not control the terminal.

    So is the start of a line that a CI runner would execute (``::error::``).
    """
    printable = "".join(
        character if character.isprintable() or character == "\n" else repr(character)[1:-1] for character in text
    )
    return _COMMAND.sub(r"\1\\x3a:", printable)


def discard_stdout() -> None:
    """Redirect stdout to the null device: Python flushes it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_process(status: int) -> NoReturn:
    """Exit with `status`, even if the user's code left threads running that would keep the process alive."""
    threads = [
        thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon
    ]
    if threads or sys.flags.inspect:  # PYTHONINSPECT would replace the status
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    gc.freeze()  # Python would search all objects of torch for garbage once more, for half a second
    sys.exit(status)


@contextlib.contextmanager
def stdin_copy() -> Iterator[Path]:
    """The path of a temporary file with the contents of standard input. Raises UsageError if that is a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "standard input is a terminal", where="-", hint="redirect a trace into the command with <, or give its file"
        )
    from profiler_kit.temporary_files import temporary_folder

    with temporary_folder("stdin") as folder:
        path = folder / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path
