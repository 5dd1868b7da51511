"""Progress on stderr: one line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import time


class Progress:
    """Says what is being done. On a terminal the line is overwritten and erased at the end; in a log each step is a line."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._began = time.monotonic()
        self._last = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live and self._last:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Shows `text`, unless it was just shown."""
        if self._quiet or text == self._last:
            return
        self._last = text
        line = f"{time.monotonic() - self._began:5.0f} s  {text}"
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{line[:width]}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)
