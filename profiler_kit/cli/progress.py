"""Progress on stderr: one changing line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import time


class Progress:
    """Shows the current activity. A terminal shows one line that is erased at the end; a log gets one line per activity."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._is_terminal = sys.stderr.isatty()
        self._start_s = time.monotonic()
        self._last_text = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal and self._last_text:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def show(self, text: str) -> None:
        """Show `text`, unless it is the text shown last."""
        if self._quiet or text == self._last_text:
            return
        self._last_text = text
        line = f"{time.monotonic() - self._start_s:5.0f} s  {text}"
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{line[:width]}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)
