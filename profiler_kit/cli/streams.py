"""Standard streams that are always usable, their width and colors, and a process exit that does not wait for other threads."""

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
from typing import Final, NoReturn, TextIO

from profiler_kit.errors import UsageError

MAX_WIDTH: Final = 160  # longer lines are hard to follow
DEFAULT_WIDTH: Final = 100  # of pipes and logs
BAR: Final = "█▏"  # characters of a bar
_LABEL_STYLES: Final = {"error": "bold red", "warning": "bold yellow", "hint": "bold cyan"}
_LABEL: Final = re.compile(rf"^({'|'.join(_LABEL_STYLES)}):", re.MULTILINE)


def width() -> int:
    """Columns for text on stdout: ``COLUMNS``, or the terminal's width, or `DEFAULT_WIDTH` for a pipe."""
    columns = 0
    with contextlib.suppress(ValueError):  # not set, or not a number
        columns = int(os.environ.get("COLUMNS", ""))
    if columns <= 0:
        with contextlib.suppress(OSError, ValueError):  # not a terminal, or closed
            columns = os.get_terminal_size(sys.stdout.fileno()).columns
    return min(columns if columns > 0 else DEFAULT_WIDTH, MAX_WIDTH)


def has_color(stream: TextIO) -> bool:
    """Whether text on `stream` is colored: ``NO_COLOR``, then ``FORCE_COLOR`` or ``CLICOLOR_FORCE``, else only on a terminal."""
    environ = os.environ
    if environ.get("NO_COLOR"):  # https://no-color.org
        return False
    if any(environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"


def can_draw(stream: TextIO) -> bool:
    """Whether the encoding of `stream` has the characters of bars."""
    try:
        BAR.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def print_message(message: str) -> None:
    """Print an error or a warning on stderr, with colored labels if stderr is colored."""
    message = escape_control_characters(message)
    print(_LABEL.sub(_styled_label, message) if has_color(sys.stderr) else message, file=sys.stderr)


def _styled_label(label: re.Match[str]) -> str:
    from rich.color import ColorSystem
    from rich.style import Style

    style = Style.parse(_LABEL_STYLES[label[1]])
    return style.render(label[0], color_system=ColorSystem.STANDARD, legacy_windows=False)


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
