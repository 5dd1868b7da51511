"""Progress on stderr: one changing line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import Final

LONG_S: Final = 1.0  # a log shows an activity that runs for so long, and a terminal counts its seconds


class Progress:
    """Shows the current activity while the block runs.

    A terminal shows one line with the elapsed time, which is erased at the end. A log gets one line for each activity that
    takes longer than `LONG_S`, but none in the first `silent_s` seconds of the block.
    """

    def __init__(self, *, quiet: bool, silent_s: float = 0.0) -> None:
        self._quiet = quiet
        self._silent_s = silent_s
        self._is_terminal = sys.stderr.isatty()
        self._start_s = self._shown_s = time.monotonic()
        self._text = self._printed_text = ""
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        if not self._quiet:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._ticker.is_alive():
            self._ticker.join()
        if self._is_terminal and self._printed_text:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def show(self, text: str) -> None:
        """Make `text` the current activity."""
        if self._quiet or text == self._text:
            return
        with self._lock:
            self._text, self._shown_s = text, time.monotonic()
            if self._is_terminal:
                self._print()

    def _tick(self) -> None:
        while not self._done.wait(LONG_S / 4):
            now_s = time.monotonic()
            with self._lock:
                is_new = self._text != self._printed_text
                is_long = now_s - self._shown_s >= LONG_S and now_s - self._start_s >= self._silent_s
                if self._text and (self._is_terminal or (is_new and is_long)):
                    self._print()

    def _print(self) -> None:
        self._printed_text = self._text
        line = f"{time.monotonic() - self._start_s:5.0f} s  {self._text}"
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{line[:width]}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)
