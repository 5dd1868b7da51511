"""Width and colors of the terminal, from the standard streams and the environment."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import Final, TextIO

from profiler_kit.cli.streams import escape_control_characters

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
